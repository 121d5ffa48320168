"""Large problems by decomposition: pods in this process and in helpers, on the one clock."""

from __future__ import annotations

from collections.abc import Callable

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_crew import PodCrew
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pod_walk import PodWalk
from arachne_opt.solvers.cascade.pods import Pods
from arachne_opt.solvers.cascade.walks.walker import MOST_BESIDE
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.seeding import Seeding

# Degrees of pods are for a deadline of the bound times this.
_TARGET = 1.02
# Work of one batch of trades, in searches of small pods.
_BATCH = 16.0
# So many pods are few; batches in vain after which few pods are left.
_FEW, _PATIENCE = 8, 8
# Where a policy has begun another search: share of the time for the first pods, and least of it;
# length of a turn of the other search. It gets so many times as long as the pods where these end so
# many times as late.
_BEGIN_SHARE, _BEGIN_LEAST, _TURN = 0.3, 1.5, 0.4
_BEHIND, _LONGER = 1.05, 4
# Share of the time for trades; in the rest all pods are walked together.
_TRADES = 0.85
# Tasks placed in batches that count as one unit of deterministic work.
_PLACED_PER_UNIT = 4_000_000


class PodSearch:
    """Improves an incumbent by pods.

    Args:
        over: whether the search must end; asked at every step.
        seeding: the search that a learned policy has begun, which goes on where pods do not help.
        near: walks from the best schedule for so much of the limit, or until it is told to end.
    """

    def __init__(
        self,
        digest: Digest,
        best: Incumbent,
        clock: Clock,
        limits: Limits,
        over: Callable[[], bool],
        seeding: Seeding | None = None,
        near: Callable[[float, Callable[[], bool]], None] | None = None,
    ) -> None:
        self._digest, self._best, self._clock = digest, best, clock
        self._limits, self._over, self._seeding, self._near = limits, over, seeding, near

    def run(self) -> None:
        """Slow pods trade cascades until the end, or as long as that helps where they are few."""
        target_us = round(self._best.bound_us * _TARGET)
        odds = None if self._seeding is None else self._seeding.odds
        solver = PodSolver(PodWalk(self._digest, target_us, self._limits.seed, odds))
        pods = Pods(self._digest, solver, self._limits.seed)
        began = self._clock.elapsed()
        end = self._first_pods_by()
        pods.begin(lambda placed: self._spent(placed) or self._clock.elapsed() > end)
        if not pods.pods:
            return
        self._offer(pods)
        crew = PodCrew(pods, solver, self._further_workers(solver))
        try:
            if self._clock.elapsed() > end or self._behind(pods):
                self._seed(pods, crew, began)
            trades_end = self._clock.elapsed() + _TRADES * self._clock.left()
            self._improve(pods, crew, trades_end)
            # Pods that gave up before leave the rest to other searches.
            if self._near is not None and self._clock.elapsed() >= trades_end:
                self._near(self._clock.left(), self._over_but_trading(crew))
                self._offer(pods)
        finally:
            crew.close()

    def _further_workers(self, solver: PodSolver) -> int:
        """Threads beside this one; they are of use where walks do not hold the interpreter."""
        limits = self._limits
        idle = limits.deterministic or not solver.walk.beside
        return 0 if idle else min(limits.workers - 1, MOST_BESIDE)

    def _first_pods_by(self) -> float:
        """When the search of the first pods has to end: early where something else can go on."""
        share = 1.0 if self._seeding is None else _BEGIN_SHARE
        return self._clock.elapsed() + max(_BEGIN_LEAST, share * self._clock.left())

    def _over_but_trading(self, crew: PodCrew) -> Callable[[], bool]:
        """Says whether the search must end, and keeps the other threads at their trades."""

        def over() -> bool:
            crew.exchange(_BATCH)
            return self._over()

        return over

    def _improve(self, pods: Pods, crew: PodCrew, end: float) -> None:
        def spent(placed: int) -> bool:
            crew.exchange(_BATCH)
            return self._spent(placed) or self._clock.elapsed() > end

        best_us, idle, began = pods.makespan_us, 0, self._clock.elapsed()
        while not self._over() and self._clock.elapsed() < end and (trades := pods.trades(_BATCH)):
            pods.settle(trades, pods.search(trades, spent))
            self._clock.spend(pods.recombine())
            self._offer(pods)
            idle = 0 if pods.makespan_us < best_us else idle + 1
            best_us = pods.makespan_us
            # Few pods have few ways to trade; the whole is then small enough for other searches.
            if len(pods.pods) <= _FEW and idle >= _PATIENCE:
                return
            if self._behind(pods) or (idle and self._seeding_is_near()):
                self._seed(pods, crew, began)
            began = self._clock.elapsed()

    def _behind(self, pods: Pods) -> bool:
        """Whether the pods are far behind the best schedule."""
        assert self._best.schedule is not None
        return pods.makespan_us > _BEHIND * self._best.schedule.makespan_us

    def _seeding_is_near(self) -> bool:
        """Whether what a policy has begun is not far behind the best schedule."""
        assert self._best.schedule is not None
        own_us = None if self._seeding is None else self._seeding.makespan_us
        return own_us is not None and own_us < _BEHIND * self._best.schedule.makespan_us

    def _seed(self, pods: Pods, crew: PodCrew, began: float) -> None:
        """What a policy has begun goes on, and the helpers trade meanwhile.

        As long as the pods have taken since, longer where they are far behind, and while it helps.
        """
        if self._seeding is None:
            return

        over, now = self._over_but_trading(crew), self._clock.elapsed()
        end = now + (now - began) * (_LONGER if self._behind(pods) else 1)
        while not self._over() and (self._seeding.run(_TURN, over) or self._clock.elapsed() < end):
            pass
        self._offer(pods)

    def _offer(self, pods: Pods) -> None:
        """Whole schedules take time: they are made when the slowest pod has become faster."""
        schedule = self._best.schedule
        if schedule is None or pods.makespan_us < schedule.makespan_us:
            self._best.offer(pods.schedule(), "pods")

    def _spent(self, placed: int) -> bool:
        self._clock.spend(placed / _PLACED_PER_UNIT)
        return self._over()
