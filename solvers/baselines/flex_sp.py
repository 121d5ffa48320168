"""FlexSP's rule as the public artifact has it (woshipapa/Arachne_artifact).

One degree per cascade for both of its tasks, no time sharing: every cascade starts at the smallest
degree of its last task; while devices are left, the slowest cascade whose next degree fits is
widened. The makespan is that of the slowest cascade.
"""

from __future__ import annotations

import time
from itertools import accumulate

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.baselines.deal import finish
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.schedule import Run


def flex_sp(problem: CascadeProblem, limits: Limits) -> Result:
    """The rule's plan; none where the smallest degrees are wider than the devices or the group.

    On mixed device types it knows no difference and does not apply.
    """
    begin_s, digest = time.perf_counter(), Digest(problem)
    degrees = flex_degrees(digest) if len(digest.kind_names) == 1 else None
    fits = degrees is not None and all(
        _mode(digest, task, degree).degree <= degree
        for row, degree in zip(digest.cascades, degrees, strict=True)
        for task in row
    )
    runs = _neighbours(digest, degrees) if degrees is not None and fits else None
    return finish(digest, runs, limits, "flex-sp", begin_s)


def flex_degrees(digest: Digest) -> list[int] | None:
    """A degree per cascade, None where the smallest ones do not fit side by side."""
    choices = [sorted(m.degree for m in digest.tasks[row[-1]].modes) for row in digest.cascades]
    degrees = [options[0] for options in choices]
    free = digest.device_count - sum(degrees)
    if free < 0:
        return None
    while True:
        wider = {
            c: min(k for k in options if k > degrees[c])
            for c, options in enumerate(choices)
            if options[-1] > degrees[c]
        }
        open_ones = [c for c, k in wider.items() if k - degrees[c] <= free]
        if not open_ones:
            return degrees
        slowest = max(open_ones, key=lambda c: _cost_us(digest, c, degrees[c]))
        free -= wider[slowest] - degrees[slowest]
        degrees[slowest] = wider[slowest]


def _cost_us(digest: Digest, cascade: int, degree: int) -> int:
    return sum(_mode(digest, task, degree).duration_us for task in digest.cascades[cascade])


def _mode(digest: Digest, task: int, degree: int) -> Mode:
    """The task at a degree; at its smallest one where it lacks that degree."""
    return digest.tasks[task].mode(degree, 0) or digest.tasks[task].modes[0]


def _neighbours(digest: Digest, degrees: list[int]) -> list[Run]:
    """Groups next to each other in the order of the cascades."""
    firsts = [0, *accumulate(degrees)]
    runs: list[Run] = []
    for cascade, row in enumerate(digest.cascades):
        for task in row:
            width = _mode(digest, task, degrees[cascade]).degree
            runs.append((task, tuple(range(firsts[cascade], firsts[cascade] + width))))
    return runs
