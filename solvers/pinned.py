"""The search for problems with pins: pooled bounds, then annealing over list schedules.

The fast decoder of ``Search`` takes the devices of a node for interchangeable, which pins forbid.
Here every move is decoded on concrete devices: slower, but each task keeps to its own.
"""

from __future__ import annotations

import math
import random
import threading

from arachne_opt.solvers.aside import Aside
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.cpsat.solver import Effort
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.list_schedule import decode
from arachne_opt.solvers.cascade.proof import prove
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.search import Parts

# Share of the time for bounds; they run before, on the workers of the search.
_PROOF_SHARE = 0.3
# Temperatures as shares of the makespan, from first to last.
_HOT, _COLD = 0.02, 0.0005
# Share of the moves that change a mode; the others change the order.
_MODE_SHARE = 0.4
# Units of deterministic work per placed task, and per CP-SAT run beside its own count.
_PLACED_PER_UNIT = 20_000
_RUN_UNITS = 0.1


class PinnedSearch:
    """Improves an incumbent until the clock, the gap or the user ends it."""

    def __init__(
        self, digest: Digest, best: Incumbent, clock: Clock, limits: Limits, parts: Parts
    ) -> None:
        self._digest = digest
        self._best = best
        self._clock = clock
        self._limits = limits
        self._parts = parts
        self._random = random.Random(limits.seed)

    def run(self) -> None:
        """Searches; the incumbent holds what was found."""
        if self._parts.proofs and not self._over():
            self._prove()
        while not self._over():
            self._anneal()

    def _over(self) -> bool:
        best, schedule = self._best, self._best.schedule
        assert schedule is not None  # list schedules come first
        done = schedule.makespan_us <= best.bound_us or best.gap() <= self._limits.gap
        return done or self._clock.over()

    def _makespan_us(self) -> int:
        assert self._best.schedule is not None
        return self._best.schedule.makespan_us

    def _prove(self) -> None:
        """Pooled bounds; the calling thread stays free to take signals."""
        bounds: list[tuple[int, float]] = []
        most_s = _PROOF_SHARE * self._limits.time_limit_s
        aside = Aside(lambda stop: bounds.extend(self._steps(self._effort(stop, most_s))))
        end = self._clock.wall_s() + most_s
        deterministic = self._limits.deterministic
        aside.wait(lambda: self._clock.over() or (not deterministic and self._clock.wall_s() > end))
        for bound_us, work in bounds:
            self._best.raise_bound(bound_us, "cpsat")
            self._clock.spend(work + _RUN_UNITS)

    def _effort(self, stop: threading.Event, most_s: float) -> Effort:
        limits = self._limits
        return Effort(
            seconds=max(0.01, most_s),
            seed=limits.seed,
            workers=1 if limits.deterministic else limits.workers,
            deterministic=limits.deterministic,
            stop=stop,
        )

    def _steps(self, effort: Effort) -> list[tuple[int, float]]:
        found = []
        left_s = effort.seconds
        for proof in prove(self._digest, self._best.bound_us, self._makespan_us, lambda: effort):
            found.append((proof.bound_us, proof.work))
            left_s -= proof.work
            if (effort.stop is not None and effort.stop.is_set()) or left_s <= 0:
                break
            effort.seconds = max(0.01, left_s) if effort.deterministic else effort.seconds
        return found

    def _anneal(self) -> None:
        """One cooling over modes and priorities from the incumbent, over the time that is left."""
        schedule = self._best.schedule
        assert schedule is not None
        modes = self._modes(schedule)
        ranks = [0] * len(modes)
        for place, (index, _) in enumerate(schedule.runs):
            ranks[index] = len(modes) - place
        now_us = schedule.makespan_us
        begin, whole = self._clock.elapsed(), max(1e-9, self._clock.left())
        while not self._over():
            cooled = min(1.0, (self._clock.elapsed() - begin) / whole)
            heat_us = now_us * _HOT * (_COLD / _HOT) ** cooled
            others, orders = self._moved(modes, ranks)
            found = decode(self._digest, others, orders)
            self._clock.spend(len(modes) / _PLACED_PER_UNIT)
            worse_us = found.makespan_us - now_us
            if worse_us <= 0 or self._random.random() < math.exp(-worse_us / heat_us):
                modes, ranks, now_us = others, orders, found.makespan_us
            if found.makespan_us < self._makespan_us():
                self._best.offer(in_start_order(self._digest, found), "annealing")

    def _modes(self, schedule: Schedule) -> list[Mode]:
        digest = self._digest
        modes: dict[int, Mode] = {}
        for index, devices in schedule.runs:
            mode = digest.tasks[index].mode(len(devices), digest.kind_of[devices[0]])
            assert mode is not None  # schedules use modes of their tasks
            modes[index] = mode
        return [modes[i] for i in range(len(digest.tasks))]

    def _moved(self, modes: list[Mode], ranks: list[int]) -> tuple[list[Mode], list[int]]:
        """Another mode for a task, or its place in the order changed for that of another one."""
        others, orders = list(modes), list(ranks)
        i = self._random.randrange(len(modes))
        if self._random.random() < _MODE_SHARE:
            others[i] = self._random.choice(self._digest.tasks[i].modes)
            return others, orders
        j = self._random.randrange(len(modes))
        orders[i], orders[j] = orders[j], orders[i]
        return others, orders
