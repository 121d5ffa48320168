"""What proofs know of the stages that a pipeline of a batch may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.tables import BatchTables
from arachne_opt.solvers.pipeline.workbench import Workbench


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFacts:
    """Stages o of a batch, from row a to row b.

    Args:
        batch: samples of a micro-batch over all replicas.
        rows: of the model.
        work_oab: seconds of a micro-batch; infinite where b is not behind a.
        exchange_oab: seconds of the gradient exchange inside the stage.
        ahead_ob: least seconds that a micro-batch sends to a stage behind.
        back_oa: the same to the stage before.
        sends: seconds between stages, forward and backward, shape [before, behind, cut].
        ends: the furthest b by o and a that memory allows, given the micro-batches in flight.
    """

    batch: int
    rows: int
    work_oab: Floats
    exchange_oab: Floats
    ahead_ob: Floats
    back_oa: Floats
    sends: Callable[[], tuple[Floats, Floats]]
    ends: Callable[[int], Ints]

    @property
    def count(self) -> int:
        """Number of stages."""
        return len(self.work_oab)


class PricedStages(NamedTuple):
    """Stages with the devices that they take of each place, shape [o, place]."""

    facts: StageFacts
    used: Floats


class SplitStages(NamedTuple):
    """Stages with the devices of each place that they may take, for each o of shape [n, place]."""

    facts: StageFacts
    splits: tuple[Ints, ...]


class Stages(Protocol):
    """All stages that a proof looks at; only where they are countable are their splits known."""

    countable: bool

    @property
    def batches(self) -> list[int]:
        """Batches that a plan may have."""
        ...

    def priced(self, batch: int) -> PricedStages:
        """Stages of a batch where devices have prices."""
        ...

    def split(self, batch: int, limits: Ints, most: int | None = None) -> SplitStages:
        """Stages of a batch where devices are counted.

        Args:
            batch: samples of a micro-batch over all replicas.
            limits: devices of each place, 0 where there may be none.
            most: splits of a stage; where it has more, some stand for those next to them.
        """
        ...


class OptionStages:
    """The stages that a workbench has as options."""

    def __init__(self, bench: Workbench) -> None:
        self.countable = True
        self._bench = bench
        self._places = bench.space.device_rows()

    @property
    def batches(self) -> list[int]:
        """See ``Stages``."""
        return self._bench.ranking.batches(self._bench.problem.global_batch)

    def priced(self, batch: int) -> PricedStages:
        """See ``Stages``."""
        facts, used = self._within(batch, self._bench.place_limits)
        return PricedStages(facts, used.astype(np.float64))

    def split(self, batch: int, limits: Ints, most: int | None = None) -> SplitStages:
        """See ``Stages``; every stage has one split."""
        facts, used = self._within(batch, limits)
        return SplitStages(facts, tuple(used[:, None]))

    def _within(self, batch: int, limits: Ints) -> tuple[StageFacts, Ints]:
        tables = self._bench.tables(batch)
        used = tables.usage[:, self._places]
        options = np.flatnonzero((used <= limits).all(axis=1))
        tables.fill(options)
        sends = cuts_between(tables, options)
        facts = StageFacts(
            batch=batch,
            rows=tables.rows,
            work_oab=tables.work_oab[options],
            exchange_oab=tables.sync_oab[options],
            ahead_ob=sends[0].min(axis=1, initial=np.inf),
            back_oa=sends[1].min(axis=0, initial=np.inf),
            sends=lambda: sends,
            ends=lambda in_flight: tables.ends(options, in_flight),
        )
        return facts, used[options]


def cuts_between(tables: BatchTables, options: Ints) -> tuple[Floats, Floats]:
    """Seconds between options, forward and backward, shape [before, behind, cut]."""
    before, behind = np.meshgrid(options, options, indexing="ij")
    forward, backward = tables.cuts(before.ravel(), behind.ravel())
    shape = (len(options), len(options), tables.rows + 1)
    return forward.reshape(shape), backward.reshape(shape)
