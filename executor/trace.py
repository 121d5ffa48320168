"""What one rank did in one step, and its form as numbers that the ranks exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from arachne_opt.executor.job import ReplayIteration

_HEAD = 5
_PER_PLACEMENT = 3
_PER_CASCADE = 2


@dataclass(slots=True, kw_only=True)
class RankTrace:
    """What one rank did in one step; times in microseconds since the step's start.

    Args:
        spans: start and end of each of its placements, by the index of the placement.
        exchange_us: time of each placement that went into waiting for the group's exchanges.
        sent_bytes: bytes that it handed to other ranks, by cascade.
        waits_us: time spent waiting for the hand-off of a cascade.
        tasks_end_us: when its last task was done.
        makespan_us: when the last task of any rank was done.
        synced_us: when the summed gradients were there.
        stepped_us: when the weights were updated.
        loss: this rank's part, and that of the whole iteration once the ranks have exchanged it.
        norm: of the gradient of the whole iteration.
    """

    step: int
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    exchange_us: dict[int, int] = field(default_factory=dict)
    sent_bytes: dict[int, int] = field(default_factory=dict)
    waits_us: dict[int, int] = field(default_factory=dict)
    tasks_end_us: int = 0
    makespan_us: int = 0
    synced_us: int = 0
    stepped_us: int = 0
    loss: float = 0.0
    norm: float = 0.0

    @property
    def waited_us(self) -> int:
        """Time spent waiting for hand-offs."""
        return sum(self.waits_us.values())

    @property
    def overhead_us(self) -> int:
        """Time per task that went into neither a task nor waiting."""
        busy = sum(end - start for start, end in self.spans.values())
        return max(0, self.tasks_end_us - busy - self.waited_us) // max(1, len(self.spans))

    def to_row(self, iteration: ReplayIteration) -> list[float]:
        """Numbers of a fixed count for an iteration, the same on all ranks."""
        row = [self.loss, self.norm, self.tasks_end_us, self.synced_us, self.stepped_us]
        for index in range(len(iteration.plan.placements)):
            row += [*self.spans.get(index, (-1, -1)), self.exchange_us.get(index, 0)]
        for cascade in range(len(iteration.problem.cascades)):
            row += [self.sent_bytes.get(cascade, 0), self.waits_us.get(cascade, 0)]
        return row

    @classmethod
    def from_row(cls, step: int, row: Sequence[float], iteration: ReplayIteration) -> RankTrace:
        """Reads the numbers back; the loss is still the rank's own part."""
        trace = cls(step=step, loss=row[0], norm=row[1])
        trace.tasks_end_us, trace.synced_us, trace.stepped_us = map(round, row[2:_HEAD])
        count = len(iteration.plan.placements)
        for index in range(count):
            start, end, waited = map(round, row[_HEAD + _PER_PLACEMENT * index :][:_PER_PLACEMENT])
            if start >= 0:
                trace.spans[index] = start, end
                trace.exchange_us[index] = waited
        rest = row[_HEAD + _PER_PLACEMENT * count :]
        for cascade in range(len(iteration.problem.cascades)):
            sent, waited = map(round, rest[_PER_CASCADE * cascade :][:_PER_CASCADE])
            trace.sent_bytes[cascade], trace.waits_us[cascade] = sent, waited
        return trace


def merge(
    step: int, rows: Sequence[Sequence[float]], iteration: ReplayIteration
) -> list[RankTrace]:
    """The traces of all ranks, each with the loss and the makespan of the whole iteration."""
    traces = [RankTrace.from_row(step, row, iteration) for row in rows]
    loss = sum(trace.loss for trace in traces)
    makespan_us = max(trace.tasks_end_us for trace in traces)
    for trace in traces:
        trace.loss, trace.makespan_us = loss, makespan_us
    return traces
