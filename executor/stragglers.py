"""Names the task that held up a step, and the rank; knows no torch."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from arachne_opt.executor.report import IterationReport, TaskReport

# A task this many times slower against its plan than the median task of its step ...
STRAGGLER_FACTOR = 1.5
# ... and later by at least this share of the step, and by this time: less is the system's noise.
_SHARE_OF_STEP = 0.05
_LEAST_LATE_US = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A task that was slow for its plan, beyond what all tasks were."""

    step: int
    rank: int
    micro_batch: str
    task: str
    planned_us: int
    measured_us: int

    @property
    def ratio(self) -> float:
        """Measured over planned duration."""
        return self.measured_us / self.planned_us

    def __str__(self) -> str:
        """For people."""
        took, planned = self.measured_us / 1e6, self.planned_us / 1e6
        what = f"{self.task} of {self.micro_batch} took {took:.3f} s, planned {planned:.3f} s"
        return f"straggler in step {self.step}: rank {self.rank}, {what} ({self.ratio:.1f} times)"


def find_straggler(report: IterationReport, factor: float = STRAGGLER_FACTOR) -> Straggler | None:
    """The task that stands out most in a step, None where none does.

    A cost table that is wrong for all tasks alike makes no straggler: that is drift.
    """
    if len(report.tasks) < 2:
        return None
    ratios = [_ratio(task) for task in report.tasks]
    usual = statistics.median(ratios)
    slowest = max(range(len(ratios)), key=ratios.__getitem__)
    task = report.tasks[slowest]
    late_us = task.duration_us - usual * _planned_us(task)
    least_us = max(_LEAST_LATE_US, _SHARE_OF_STEP * report.measured_us)
    if ratios[slowest] < factor * usual or late_us < least_us:
        return None
    # Its peers wait for it in the exchanges; it waits for nobody.
    rank = max(task.ranks, key=lambda span: span.own_us).rank
    return Straggler(
        step=report.step,
        rank=rank,
        micro_batch=task.micro_batch,
        task=task.task,
        planned_us=_planned_us(task),
        measured_us=task.duration_us,
    )


def _planned_us(task: TaskReport) -> int:
    return max(1, task.planned_end_us - task.planned_start_us)


def _ratio(task: TaskReport) -> float:
    return task.duration_us / _planned_us(task)
