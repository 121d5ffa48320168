"""All trainers that pipeline plans can be written for, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from arachne_opt.exporters import accelerate, deepspeed, megatron, torchtitan
from arachne_opt.exporters.grid import Abilities, Grid
from arachne_opt.exporters.text import ExportedText


class Export(Protocol):
    """Writes a grid; ``source`` names the plan."""

    def __call__(self, grid: Grid, *, sequence_length: int, source: str = "") -> ExportedText: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """What a trainer can be told, and how."""

    abilities: Abilities
    export: Export


TRAINERS: Mapping[str, Trainer] = MappingProxyType(
    {
        "megatron": Trainer(abilities=megatron.ABILITIES, export=megatron.export),
        "torchtitan": Trainer(abilities=torchtitan.ABILITIES, export=torchtitan.export),
        "accelerate": Trainer(abilities=accelerate.ABILITIES, export=accelerate.export),
        "deepspeed": Trainer(abilities=deepspeed.ABILITIES, export=deepspeed.export),
    }
)
