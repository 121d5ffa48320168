"""How the weights are updated and where a training is kept; knows no torch."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.errors import InputError

SHARDINGS = ("replicated", "zero1", "fsdp2")
PRECISIONS = ("fp32", "bf16")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """How the optimizer turns gradients into weights.

    Args:
        sharding: who keeps the optimizer's state: all ranks all of it (``replicated``), each rank
            its part (``zero1``), or each rank its part of the weights, too (``fsdp2``).
        precision: of the transformer's forward and backward; weights, gradients and their sums
            are in fp32 either way.
        schedule: course of the learning rate after the warm-up.
        warmup_steps: steps over which the learning rate grows to its full height.
        clip_norm: largest norm of the whole gradient; 0 does not clip.
        ema_decay: share of the old value in the moving average of the weights; 0 keeps none.
    """

    sharding: str = "zero1"
    precision: str = "fp32"
    schedule: str = "constant"
    warmup_steps: int = 0
    clip_norm: float = 0.0
    ema_decay: float = 0.0

    def __post_init__(self) -> None:
        check_choice("sharding", self.sharding, SHARDINGS)
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("schedule", self.schedule, SCHEDULES)
        if self.warmup_steps < 0 or self.clip_norm < 0:
            raise InputError("warmup_steps and clip_norm must not be negative")
        if not 0 <= self.ema_decay < 1:
            raise InputError(f"ema_decay is a share below 1, not {self.ema_decay}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """Where and how often a training is kept.

    Args:
        folder: of the checkpoints, on a disk that all ranks share; empty keeps none.
        every: steps from one checkpoint to the next; 0 keeps one at the end only.
        keep: this many newest checkpoints stay.
        resume: begin with the newest checkpoint of the folder where there is one.
    """

    folder: str = ""
    every: int = 0
    keep: int = 2
    resume: bool = False

    def __post_init__(self) -> None:
        if self.every < 0 or self.keep < 1:
            raise InputError("a checkpoint is kept every N >= 0 steps, and at least 1 of them")
        if not self.folder and (self.every or self.resume):
            raise InputError("checkpoints need a folder", hint="--checkpoint-dir FOLDER")


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuses a word that is not among the known ones."""
    if value not in known:
        raise InputError(f"unknown {name} {value!r}", hint=f"one of {', '.join(known)}")
