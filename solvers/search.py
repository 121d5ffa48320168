"""Annealing and walks on the main thread, bounds and exact neighbourhoods aside, on one clock."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import NamedTuple

from arachne_opt.solvers.aside import Aside
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.annealing import Annealer, Cooling, Spent
from arachne_opt.solvers.cascade.cpsat.solver import Effort
from arachne_opt.solvers.cascade.decoder import ONE_NODE, FastDecoder, State
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.large import is_large
from arachne_opt.solvers.cascade.list_schedule import (
    RULES,
    cascade_fronts,
    decode,
    modes_for_deadline,
    priorities,
)
from arachne_opt.solvers.cascade.list_walk import ListWalk
from arachne_opt.solvers.cascade.neighbourhood import Neighbourhood
from arachne_opt.solvers.cascade.proof import Proof, prove
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.seeding import Seeding
from arachne_opt.solvers.seeds.policy_file import PolicyFile

# Rounds of annealing use these in turn.
_COOLINGS = (
    Cooling(hot=0.02, cold=0.0005, across=0.4),
    Cooling(),
    Cooling(hot=0.01, cold=0.0003, across=0.4),
)
_ROUNDS, _SHORTEST_ROUND = 12, 0.5
# Fresh starts take degrees for deadlines up to this multiple of the bound.
_LOOSEST = 1.3
# Longest run of one neighbourhood, and shares of a sequential solve.
_NEIGHBOURHOOD_S = 1.5
_PROOF_SHARE = 0.3
_WARM_SHARE = 0.3
# Placed tasks of annealing that count as one unit of deterministic work, and those of lists.
_PLACED_PER_UNIT, _LISTED_PER_UNIT = 800_000, 100_000
# Building and simplifying a model, which CP-SAT's deterministic time leaves out.
_RUN_UNITS = 0.1

# Between two looks whether pods have ended. Beside them proofs take this share of the limit: on
# large problems more time raises no bound, but takes a core from a helper.
_PAUSE_S, _LARGE_PROOF_SHARE = 0.05, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a search may use, for comparisons without one of them.

    Args:
        lists: list schedules as starts beside a given plan.
        proofs: the ladder of pooled CP-SAT bounds; its solutions are starts too.
        annealing: annealing over decoded states.
        neighbourhoods: exact neighbourhoods by CP-SAT.
        pods: decomposition of large problems.
        area_cut: the redundant area cut of the pooled model.
        policy: a learned policy whose plans are starts too, None for none.
    """

    lists: bool = True
    proofs: bool = True
    annealing: bool = True
    neighbourhoods: bool = True
    pods: bool = True
    area_cut: bool = True
    policy: PolicyFile | None = None


class _Found(NamedTuple):
    """News from the other thread."""

    bound_us: int = 0
    schedule: Schedule | None = None
    start: State | None = None


class Search:
    """Improves an incumbent until the clock, the gap or the user ends it.

    Args:
        start: a schedule to begin the annealing with, such as one after the plan of a near problem.
        seeding: the search that a learned policy has begun, which takes turns with the others.
    """

    def __init__(
        self,
        digest: Digest,
        best: Incumbent,
        clock: Clock,
        limits: Limits,
        parts: Parts,
        start: Schedule | None = None,
        seeding: Seeding | None = None,
    ) -> None:
        self._parts = parts
        self._seeding = seeding
        self._digest = digest
        self._best = best
        self._clock = clock
        self._limits = limits
        self._decoder = FastDecoder(digest)
        self._news: SimpleQueue[_Found] = SimpleQueue()
        self._starts = [] if start is None else [self._decoder.state_of(start)]
        self._annealer = Annealer(self._decoder, limits.seed, self._take_annealed)
        self._neighbourhood = Neighbourhood(self._decoder, limits.seed)
        self._walker = ListWalk(digest, limits.seed)
        self._chance = random.Random(limits.seed)
        self._fronts = cascade_fronts(digest)
        self._round = 0
        self._large = is_large(digest) and parts.pods

    def run(self) -> None:
        """Searches; the incumbent holds what was found."""
        if self._over():
            return
        if self._limits.deterministic or self._limits.workers == 1:
            self._in_turn()
            return
        aside = Aside(self._prove_then_improve)
        try:
            if self._large:
                self._by_pods()
            if self._parts.annealing:
                self._anneal(1.0)
            aside.wait(self._over)
        finally:
            aside.finish()
            self._read_news()

    def _over(self) -> bool:
        self._read_news()
        best, schedule = self._best, self._best.schedule
        assert schedule is not None
        done = schedule.makespan_us <= best.bound_us or best.gap() <= self._limits.gap
        return done or self._clock.over()

    def _read_news(self) -> None:
        while not self._news.empty():
            found = self._news.get()
            self._best.raise_bound(found.bound_us, "cpsat")
            if found.start is not None:
                self._starts.append(found.start)
            if found.schedule is not None and self._best.offer(found.schedule, "neighbourhood"):
                self._annealer.note_best(found.schedule.makespan_us)
                self._starts.append(self._decoder.state_of(found.schedule))

    # ------------------------------------------------------------------ aside: CP-SAT

    def _effort(self, stop: threading.Event, most_s: float) -> Effort:
        limits = self._limits
        return Effort(
            seconds=max(0.01, min(most_s, self._clock.left())),
            seed=limits.seed,
            workers=1 if limits.deterministic else max(1, limits.workers - 1),
            deterministic=limits.deterministic,
            stop=stop,
        )

    def _prove_then_improve(self, stop: threading.Event) -> None:
        if self._parts.proofs:
            share = _LARGE_PROOF_SHARE if self._large else 1.0
            self._prove(stop, share * self._limits.time_limit_s)
        while self._parts.neighbourhoods and not stop.is_set():
            if self._large:
                # One neighbourhood is too small to matter as long as pods find something.
                stop.wait(_PAUSE_S)
            else:
                self._improve(stop)

    def _prove(self, stop: threading.Event, most_s: float) -> None:
        """The ladder of pooled bounds; its solutions are starts for annealing."""
        steps = prove(
            self._digest,
            self._best.bound_us,
            self._makespan_us,
            lambda: self._effort(stop, most_s),
            area_cut=self._parts.area_cut,
        )
        for proof in steps:
            self._clock.spend(proof.work + _RUN_UNITS)
            self._news.put(_Found(bound_us=proof.bound_us, start=self._start_of(proof)))
            if stop.is_set():
                return

    def _makespan_us(self) -> int:
        assert self._best.schedule is not None
        return self._best.schedule.makespan_us

    def _start_of(self, proof: Proof) -> State | None:
        if proof.modes is None:
            return None
        modes: tuple[Mode, ...] = proof.modes
        picks = [self._decoder.pick_of(i, m.degree, m.kind) for i, m in enumerate(modes)]
        return State(list(proof.order), picks, [ONE_NODE] * len(picks))

    def _improve(self, stop: threading.Event) -> None:
        schedule = self._best.schedule
        assert schedule is not None
        effort = self._effort(stop, _NEIGHBOURHOOD_S)
        better = self._neighbourhood.improve(schedule, self._best.bound_us, effort)
        self._clock.spend(self._neighbourhood.work + _RUN_UNITS)
        if better is not None:
            self._news.put(_Found(schedule=better))

    # ------------------------------------------------------------------ main: annealing

    def _by_pods(self) -> None:
        """Decomposition as long as it helps; then the problem is searched whole."""
        # Late: numpy is needed for this only.
        from arachne_opt.solvers.pod_search import PodSearch

        search = PodSearch(
            self._digest, self._best, self._clock, self._limits, self._over, self._seeding
        )
        search.run()
        self._large = False

    def _in_turn(self) -> None:
        """The same parts one after the other, for one worker or equal results."""
        parts, limit = self._parts, self._limits.time_limit_s
        if not self._large:
            self._warm_up()
        if parts.proofs:
            share = _LARGE_PROOF_SHARE if self._large else _PROOF_SHARE
            Aside(lambda stop: self._prove(stop, share * limit)).wait(self._over)
        if self._large:
            self._by_pods()
        while (parts.annealing or parts.neighbourhoods) and not self._over():
            if parts.annealing:
                self._anneal(0.25)
            if parts.neighbourhoods and not self._over():
                Aside(self._improve).wait(self._over)

    def _warm_up(self) -> None:
        """Annealing of a schedule that was given, before what begins from nothing."""
        if self._starts and self._parts.annealing:
            self._anneal(_WARM_SHARE)

    def _anneal(self, share: float) -> None:
        """Rounds of annealing for a share of the time that is left."""
        whole = self._clock.left() * share
        end = self._clock.elapsed() + whole
        length = max(_SHORTEST_ROUND, whole / _ROUNDS)
        self._annealer.note_best(self._makespan_us())
        while self._clock.elapsed() < end and not self._over():
            length = min(length, end - self._clock.elapsed())
            before_us = self._makespan_us()
            cooling = _COOLINGS[self._round % len(_COOLINGS)]
            self._annealer.round(self._next_start(), cooling, self._spent(length))
            self._round += 1
            if self._makespan_us() >= before_us:
                self._list(length)

    def _list(self, length: float) -> None:
        """Turns of searches among list schedules, as long as they help.

        One walks from the best schedule, the other is what a learned policy has begun, if any.
        """
        helped = True
        while helped and not self._over():
            helped = self._walk(length)
            if self._seeding is not None and not self._over():
                helped |= self._seeding.run(length, self._over)
            self._annealer.note_best(self._makespan_us())

    def _walk(self, length: float) -> bool:
        """A walk of list schedules from the best one; whether it found a better one."""
        assert self._best.schedule is not None
        found, spent = False, self._spent(length, _LISTED_PER_UNIT)
        walk = self._walker.walk(
            self._walker.start(self._best.schedule), lambda: spent(len(self._digest.tasks))
        )
        for at in walk:
            if at.listed.makespan_us < self._makespan_us():
                schedule = in_start_order(self._digest, self._walker.schedule(at))
                found |= self._best.offer(schedule, "walk")
        return found

    def _next_start(self) -> State:
        """What the other thread found last, else a fresh schedule, in the last turn the best."""
        if self._starts:
            return self._starts.pop()
        if self._round % len(_COOLINGS) < len(_COOLINGS) - 1:
            return self._decoder.state_of(self._fresh())
        assert self._best.schedule is not None
        return self._decoder.state_of(self._best.schedule)

    def _fresh(self) -> Schedule:
        """A list schedule for a random deadline by a random rule."""
        deadline_us = round(self._best.bound_us * self._chance.uniform(1.0, _LOOSEST))
        modes = modes_for_deadline(self._digest, self._fronts, deadline_us)
        rule = self._chance.choice(RULES)
        return decode(self._digest, modes, priorities(self._digest, modes, rule))

    def _spent(self, length: float, per_unit: float = _PLACED_PER_UNIT) -> Spent:
        begin = self._clock.elapsed()

        def spent(placed: int) -> float:
            self._clock.spend(placed / per_unit)
            return 1.0 if self._over() else (self._clock.elapsed() - begin) / length

        return spent

    def _take_annealed(self, schedule: Schedule) -> None:
        self._best.offer(schedule, "annealing")
