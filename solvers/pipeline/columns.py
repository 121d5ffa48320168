"""Columns: pipelines with layers and batch fixed, priced for any number of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.costs.pipeline.base import Ints
from arachne_opt.pipeline.plan import Pipeline, Replica, Stage
from arachne_opt.solvers.pipeline.options import StageOption
from arachne_opt.solvers.pipeline.search import Found


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """A pipeline; ``seconds(M)`` is what it takes for M micro-batches, without gradient exchange.

    Args:
        batch: samples of a micro-batch over all replicas.
        used: what it takes of each limit.
    """

    batch: int
    options: tuple[StageOption, ...]
    cuts: tuple[int, ...]
    load_s: float
    fill_s: float
    update_s: float
    used: Ints

    @property
    def first_s(self) -> float:
        """Seconds of a single micro-batch with the update."""
        return self.fill_s + self.update_s

    @property
    def key(self) -> tuple[object, ...]:
        """What distinguishes a column from others."""
        return self.options, self.cuts

    def seconds(self, microbatches: int) -> float:
        """(M - 1) · load + fill + update."""
        return (microbatches - 1) * self.load_s + self.first_s

    def microbatches_within(self, seconds: float) -> int:
        """Most micro-batches that end within a time."""
        if seconds < self.first_s:
            return 0
        return int((seconds - self.first_s) / self.load_s * (1 + 1e-12)) + 1

    def pipeline(self, microbatches: int) -> Pipeline:
        """The pipeline of a plan."""
        stages = tuple(
            Stage(
                first=self.cuts[i],
                end=self.cuts[i + 1],
                replicas=tuple(Replica(kind) for kind in option.ring),
                recompute=option.recompute,
            )
            for i, option in enumerate(self.options)
        )
        return Pipeline(
            microbatch=self.options[0].microbatch, stages=stages, microbatches=microbatches
        )


def column_of(found: Found, options: tuple[StageOption, ...], batch: int, usage: Ints) -> Column:
    """The column of a template that was divided."""
    template = list(found.template)
    return Column(
        batch=batch,
        options=tuple(options[o] for o in template),
        cuts=found.cuts,
        load_s=found.load_s,
        fill_s=found.fill_s,
        update_s=found.update_s,
        used=usage[template].sum(axis=0),
    )
