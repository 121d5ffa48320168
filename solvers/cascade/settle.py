"""Gentle search around schedules that are good already, such as one made after a near plan.

A walk that begins hot forgets where it began. These begin cold, and between them
every task is offered its best group, see ``polish``.
"""

from __future__ import annotations

from collections.abc import Iterable

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.polish import polish
from arachne_opt.solvers.cascade.schedule import Schedule
from arachne_opt.solvers.cascade.walks.cooling import Heat, cooled
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent

# Time for one schedule as a share of the limit, at most so much, cut into so many rounds.
_SHARE, _LONGEST, _ROUNDS = 0.1, 1.0, 4
_HEAT = Heat(hot=0.006, cold=0.0003)
_POLISHED_PER_UNIT = 2000  # tasks that count as one unit of deterministic work


def settle(
    digest: Digest, starts: Iterable[Schedule], best: Incumbent, clock: Clock, limits: Limits
) -> None:
    """Searches around each of the schedules for a share of the time, and offers what it finds."""
    for start in starts:
        end = clock.elapsed() + min(_LONGEST, _SHARE * limits.time_limit_s)
        schedule, walks = start, Walks(digest)
        for left in range(_ROUNDS, 0, -1):
            before = schedule.key
            schedule = _polished(digest, schedule, best, clock, end)
            length = (end - clock.elapsed()) / left
            if length <= 0 or clock.over() or best.gap() <= limits.gap:
                break
            schedule = _walked(walks, schedule, best, clock, length, limits.seed + left)
            if schedule.key == before and left < _ROUNDS:
                break


def _polished(
    digest: Digest, schedule: Schedule, best: Incumbent, clock: Clock, end: float
) -> Schedule:
    clock.spend(len(schedule.runs) / _POLISHED_PER_UNIT)
    schedule = polish(digest, schedule, lambda: clock.over() or clock.elapsed() > end)
    best.offer(schedule, "start plan")
    return schedule


def _walked(
    walks: Walks, schedule: Schedule, best: Incumbent, clock: Clock, length: float, seed: int
) -> Schedule:
    """The best schedule of one walk."""
    walker, begin, seen = walks.walker(seed), clock.elapsed(), schedule.key[:2]

    def progress(placed: int) -> float:
        clock.spend(placed / walker.placed_per_unit)
        return 1.0 if clock.over() else (clock.elapsed() - begin) / length

    for place in cooled(walker, walks.table.of_schedule(schedule), _HEAT, progress):
        if place.key < seen:
            seen = place.key
            schedule = min(schedule, walks.schedule(place), key=lambda s: s.key)
            best.offer(schedule, "start plan")
    return schedule
