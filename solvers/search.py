"""Walks on the main thread, bounds and exact neighbourhoods aside, on one clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from queue import SimpleQueue
from typing import NamedTuple

from arachne_opt.solvers.aside import Aside
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.cpsat.solver import Effort
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.large import is_large
from arachne_opt.solvers.cascade.neighbourhood import Neighbourhood
from arachne_opt.solvers.cascade.proof import Proof, prove
from arachne_opt.solvers.cascade.rule_draws import RuleDraws
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order
from arachne_opt.solvers.cascade.walks.choice import Choice
from arachne_opt.solvers.cascade.walks.cooling import Heat
from arachne_opt.solvers.cascade.walks.racing import STARTS, raced
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.seeding import Seeding
from arachne_opt.solvers.seeds.policy_file import PolicyFile

# Searches of so many seconds, or units of work, are short.
SHORT_S = 1.0
# Walks from the best, and from elsewhere; every so many turns the first one is from the best.
_NEAR, _FAR = Heat(hot=0.002, cold=0.0003), Heat(hot=0.003, cold=0.0003)
_TURNS = 3
# Seconds of the shortest walk; later ones take this share of what all before have taken.
_SHORTEST_ROUND, _LONGER = 0.2, 0.25
# Longest run of one neighbourhood, in seconds and as a share; shares of a sequential solve.
_NEIGHBOURHOOD_S, _NEIGHBOURHOOD_SHARE = 1.5, 0.1
_PROOF_SHARE = 0.3
_WARM_SHARE = 0.3
_WALK_SHARE = 0.25
# Building and simplifying a model, which CP-SAT's deterministic time leaves out.
_RUN_UNITS = 0.1

# Between two looks whether pods have ended.
_PAUSE_S = 0.05
# Share of short sequential searches for proofs: more time hardly ever raises a bound there.
_BRIEF_PROOF_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a search may use, for comparisons without one of them.

    Args:
        lists: list schedules as starts beside a given plan.
        proofs: the ladder of pooled CP-SAT bounds; its solutions are starts too.
        walks: annealing of list schedules.
        neighbourhoods: exact neighbourhoods by CP-SAT.
        pods: decomposition of large problems.
        area_cut: the redundant area cut of the pooled model.
        policy: a learned policy whose plans are starts too, None for none.
    """

    lists: bool = True
    proofs: bool = True
    walks: bool = True
    neighbourhoods: bool = True
    pods: bool = True
    area_cut: bool = True
    policy: PolicyFile | None = None


class _Found(NamedTuple):
    """News from the other thread."""

    bound_us: int = 0
    schedule: Schedule | None = None
    start: Choice | None = None


class Search:
    """Improves an incumbent until the clock, the gap or the user ends it.

    Args:
        start: a schedule to begin the walks with, such as one after the plan of a near problem.
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
        self._neighbourhood = Neighbourhood(self._decoder, limits.seed)
        self._walks = Walks(digest)
        self._table = self._walks.table
        self._walker = self._walks.walker(limits.seed)
        self._starts = [] if start is None else [self._table.of_schedule(start)]
        self._draws = RuleDraws(digest, self._table, limits.seed)
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
            if self._parts.walks:
                self._walks_for(1.0)
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
            if found.schedule is not None:
                self._best.offer(found.schedule, "neighbourhood")

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
        # As long as pods find something a neighbourhood is too small to matter, and on so large a
        # problem the first bounds are hardly ever raised.
        while self._large and not stop.wait(_PAUSE_S):
            pass
        if self._parts.proofs and not stop.is_set():
            self._prove(stop, self._limits.time_limit_s)
        while self._parts.neighbourhoods and not stop.is_set():
            self._improve(stop)

    def _prove(self, stop: threading.Event, most_s: float) -> None:
        """The ladder of pooled bounds; its solutions are starts of walks."""
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

    def _start_of(self, proof: Proof) -> Choice | None:
        if proof.modes is None:
            return None
        priority = [0] * len(proof.modes)
        for rank, task in enumerate(proof.order):
            priority[task] = -rank
        return self._table.choice(proof.modes, priority)

    def _improve(self, stop: threading.Event) -> None:
        schedule = self._best.schedule
        assert schedule is not None
        most_s = min(_NEIGHBOURHOOD_S, _NEIGHBOURHOOD_SHARE * self._limits.time_limit_s)
        effort = self._effort(stop, most_s)
        better = self._neighbourhood.improve(schedule, self._best.bound_us, effort)
        self._clock.spend(self._neighbourhood.work + _RUN_UNITS)
        if better is not None:
            self._news.put(_Found(schedule=better))

    # ------------------------------------------------------------------ main: walks

    def _by_pods(self) -> None:
        """Decomposition as long as it helps; then the problem is searched whole."""
        # Late: numpy is needed for this only.
        from arachne_opt.solvers.pod_search import PodSearch

        near = self._walk_near if self._parts.walks else None
        search = PodSearch(
            self._digest, self._best, self._clock, self._limits, self._over, self._seeding, near
        )
        search.run()
        self._large = False

    def _in_turn(self) -> None:
        """The same parts one after the other, for one worker or equal results."""
        parts, limit = self._parts, self._limits.time_limit_s
        if self._large:
            self._by_pods()
        else:
            self._warm_up()
        if parts.proofs and not self._over():
            share = _BRIEF_PROOF_SHARE if limit <= SHORT_S else _PROOF_SHARE
            Aside(lambda stop: self._prove(stop, share * limit)).wait(self._over)
        while (parts.walks or parts.neighbourhoods) and not self._over():
            if parts.walks:
                self._walks_for(_WALK_SHARE)
            if parts.neighbourhoods and not self._over():
                Aside(self._improve).wait(self._over)

    def _warm_up(self) -> None:
        """Walks from a schedule that was given, before what begins from nothing."""
        if self._starts and self._parts.walks:
            self._walks_for(_WARM_SHARE)

    def _walks_for(self, share: float) -> None:
        """Rounds of walks for a share of the time that is left: from the best, and from afar."""
        begin = self._clock.elapsed()
        end = begin + self._clock.left() * share
        while self._clock.elapsed() < end and not self._over():
            length = max(_SHORTEST_ROUND, _LONGER * (self._clock.elapsed() - begin))
            length = min(length, end - self._clock.elapsed())
            self._round_of(length)

    def _round_of(self, length: float) -> None:
        """One walk, or a race of many, of so much of the limit."""
        turn = self._round % _TURNS
        self._round += 1
        if turn == 0 and not self._starts:
            self._walk_near(length, self._over)
        elif turn == 1 and self._seeding is not None:
            self._seeding.run(length, self._over)
        else:
            given, self._starts = self._starts, []
            bound_us = self._best.bound_us
            fresh = (self._draws.choice(bound_us) for _ in range(STARTS - len(given)))
            self._walk(chain(given, fresh), _FAR, length, self._over)

    def _walk_near(self, length: float, over: Callable[[], bool]) -> None:
        """A walk from the best schedule."""
        assert self._best.schedule is not None
        self._walk([self._table.of_schedule(self._best.schedule)], _NEAR, length, over)

    def _walk(
        self, starts: Iterable[Choice], heat: Heat, length: float, over: Callable[[], bool]
    ) -> None:
        """Walks for so much of the limit, whose improvements are offered."""
        walker, begin = self._walker, self._clock.elapsed()

        def progress(placed: int) -> float:
            self._clock.spend(placed / walker.placed_per_unit)
            return 1.0 if over() else (self._clock.elapsed() - begin) / length

        for place in raced(walker, starts, heat, progress):
            if place.makespan_us < self._makespan_us():
                self._best.offer(in_start_order(self._digest, self._walks.schedule(place)), "walk")
