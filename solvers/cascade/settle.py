"""Gentle search around schedules that are good already, such as one made after a near plan.

A round of annealing that begins hot forgets where it began. These begin cold, and between them
every task is offered its best group, see ``polish``.
"""

from __future__ import annotations

from collections.abc import Iterable

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.annealing import Annealer, Cooling
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.polish import polish
from arachne_opt.solvers.cascade.schedule import Schedule
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent

# Time for one schedule as a share of the limit, at most so much, cut into so many rounds.
_SHARE, _LONGEST, _ROUNDS = 0.1, 1.0, 4
_COOLING = Cooling(hot=0.006, cold=0.0003, across=0.2)
# Placed tasks that count as one unit of deterministic work, and polished ones.
_PLACED_PER_UNIT, _POLISHED_PER_UNIT = 800_000, 2000


def settle(
    digest: Digest, starts: Iterable[Schedule], best: Incumbent, clock: Clock, limits: Limits
) -> None:
    """Searches around each of the schedules for a share of the time, and offers what it finds."""
    for start in starts:
        end = clock.elapsed() + min(_LONGEST, _SHARE * limits.time_limit_s)
        schedule = start
        for left in range(_ROUNDS, 0, -1):
            before = schedule.key
            schedule = _polished(digest, schedule, best, clock, end)
            length = (end - clock.elapsed()) / left
            if length <= 0 or clock.over() or best.gap() <= limits.gap:
                break
            schedule = _annealed(digest, schedule, best, clock, length, limits.seed + left)
            if schedule.key == before and left < _ROUNDS:
                break


def _polished(
    digest: Digest, schedule: Schedule, best: Incumbent, clock: Clock, end: float
) -> Schedule:
    clock.spend(len(schedule.runs) / _POLISHED_PER_UNIT)
    schedule = polish(digest, schedule, lambda: clock.over() or clock.elapsed() > end)
    best.offer(schedule, "start plan")
    return schedule


def _annealed(
    digest: Digest, schedule: Schedule, best: Incumbent, clock: Clock, length: float, seed: int
) -> Schedule:
    """The best schedule of one round."""
    decoder, begin = FastDecoder(digest), clock.elapsed()
    found = [schedule]

    def take(other: Schedule) -> None:
        best.offer(other, "start plan")
        if other.key < found[-1].key:
            found.append(other)

    def spent(placed: int) -> float:
        clock.spend(placed / _PLACED_PER_UNIT)
        return 1.0 if clock.over() else (clock.elapsed() - begin) / length

    annealer = Annealer(decoder, seed, take)
    annealer.note_best(schedule.makespan_us)
    annealer.round(decoder.state_of(schedule), _COOLING, spent)
    return found[-1]
