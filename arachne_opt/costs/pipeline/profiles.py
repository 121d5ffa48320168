"""Measured profiles of one model, before they are cut to a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from arachne_opt.pipeline.rows import RowModel
from arachne_opt.pipeline.tables import NodeLink, Route, StepTimes


@dataclass(frozen=True, kw_only=True)
class Profiles:
    """What was measured for a model.

    Args:
        model: its rows, with sizes of every tp that any type was measured at.
        routes: network curves; their zones are those of the measurements.
        home_zone: the measurements' zone that stands for a cluster's ``default`` one.
        version: digest of the files, part of the key of a plan.
        notes: assumptions, shown with every plan.
        published_memory: nominal memory of each type in bytes, for reference.
    """

    model: RowModel
    steps: tuple[StepTimes, ...]
    routes: tuple[Route, ...]
    node_links: tuple[NodeLink, ...]
    home_zone: str
    version: str
    notes: tuple[str, ...] = ()
    published_memory: Mapping[str, int] = field(default_factory=dict)

    @property
    def device_types(self) -> tuple[str, ...]:
        """Types with step times, in order."""
        return tuple(dict.fromkeys(s.device_type for s in self.steps))
