"""Compares what tasks take with what was planned, over the last steps; knows no torch."""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from arachne_opt.executor.report import IterationReport, TaskReport
from arachne_opt.workload import Shape

DEFAULT_WINDOW = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """How much longer tasks of one kind take than planned.

    Args:
        shape: of the clips; None stands for all shapes that were not measured.
        clips: of the micro-batch; 0 where ``shape`` is None.
        ratio: measured over planned duration, the median.
    """

    task: str
    device_type: str
    degree: int
    ratio: float
    shape: Shape | None = None
    clips: int = 0


class DriftMonitor:
    """Collects steps and says whether the durations behind their plans still hold.

    Args:
        threshold: error from which on the plans are made of wrong durations, such as 0.25.
        window: steps that count.
        skip: first steps that are left out: they warm up.
    """

    def __init__(self, threshold: float, *, window: int = DEFAULT_WINDOW, skip: int = 1) -> None:
        self._threshold, self._window, self._skip = threshold, window, skip
        self._steps: deque[IterationReport] = deque(maxlen=window)

    def add(self, report: IterationReport) -> None:
        """Takes in a step."""
        if self._skip > 0:
            self._skip -= 1
            return
        self._steps.append(report)

    def restart(self) -> None:
        """Forgets all steps: the plans to come have other durations."""
        self._steps.clear()

    @property
    def error(self) -> float:
        """Sum of |measured - planned| over the sum of planned, over all tasks of the window."""
        pairs = [(task.duration_us, _planned_us(task)) for task in self._tasks()]
        planned = sum(p for _, p in pairs)
        return sum(abs(m - p) for m, p in pairs) / planned if planned else 0.0

    @property
    def drifted(self) -> bool:
        """Whether the window is full and the error beyond the threshold."""
        return len(self._steps) == self._window and self.error > self._threshold

    def deviations(self) -> tuple[Deviation, ...]:
        """The ratios of all shapes measured, and of each kind of task for the other shapes."""
        exact: dict[tuple[str, str, int, Shape, int], list[float]] = defaultdict(list)
        kinds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        for task in self._tasks():
            ratio = task.duration_us / _planned_us(task)
            kind = task.task, task.device_type, len(task.ranks)
            exact[(*kind, task.shape, task.clips)].append(ratio)
            kinds[kind].append(ratio)
        return (*_exact(exact.items()), *_general(kinds.items()))

    def _tasks(self) -> Iterator[TaskReport]:
        return (task for report in self._steps for task in report.tasks)


def _exact(
    rows: Iterable[tuple[tuple[str, str, int, Shape, int], list[float]]],
) -> Iterator[Deviation]:
    for (task, device_type, degree, shape, clips), ratios in rows:
        yield Deviation(
            task=task,
            device_type=device_type,
            degree=degree,
            ratio=statistics.median(ratios),
            shape=shape,
            clips=clips,
        )


def _general(rows: Iterable[tuple[tuple[str, str, int], list[float]]]) -> Iterator[Deviation]:
    for (task, device_type, degree), ratios in rows:
        ratio = statistics.median(ratios)
        yield Deviation(task=task, device_type=device_type, degree=degree, ratio=ratio)


def _planned_us(task: TaskReport) -> int:
    return max(1, task.planned_end_us - task.planned_start_us)
