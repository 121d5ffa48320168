"""Large problems by decomposition: pods in this process and in helpers, on the one clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_helper import Helper, start_helpers
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pods import Pods
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent

# Degrees of pods are for a deadline of the bound times this.
_TARGET = 1.02
# Work of one batch of trades, in searches of small pods.
_BATCH = 96.0
# So many pods are few; batches in vain after which few pods are left.
_FEW, _PATIENCE = 8, 8
# Tasks placed in batches that count as one unit of deterministic work.
_PLACED_PER_UNIT = 4_000_000


class PodSearch:
    """Improves an incumbent by pods.

    Args:
        over: whether the search must end; asked at every step.
    """

    def __init__(
        self,
        digest: Digest,
        best: Incumbent,
        clock: Clock,
        limits: Limits,
        over: Callable[[], bool],
    ) -> None:
        self._digest, self._best, self._clock = digest, best, clock
        self._limits, self._over = limits, over

    def run(self) -> None:
        """Slow pods trade cascades until the end, or as long as that helps where they are few."""
        target_us = round(self._best.bound_us * _TARGET)
        helpers = self._helpers(target_us)
        try:
            solver = PodSolver(self._digest, target_us, self._limits.seed)
            pods = Pods(self._digest, solver, self._limits.seed)
            pods.begin(self._spent)
            if pods.pods:
                self._improve(pods, helpers)
        finally:
            for helper in helpers:
                helper.close()

    def _helpers(self, target_us: int) -> list[Helper]:
        """A process for every further worker; they start while the pods are made."""
        limits = self._limits
        count = 0 if limits.deterministic else limits.workers - 1
        return start_helpers(self._digest, target_us, limits.seed, count)

    def _improve(self, pods: Pods, helpers: Sequence[Helper]) -> None:
        def spent(placed: int) -> bool:
            _exchange(pods, helpers)
            return self._spent(placed)

        self._offer(pods)
        best_us, idle = pods.makespan_us, 0
        while not self._over() and (trades := pods.trades(_BATCH)):
            pods.settle(trades, pods.search(trades, spent))
            self._clock.spend(pods.recombine())
            self._offer(pods)
            idle = 0 if pods.makespan_us < best_us else idle + 1
            best_us = pods.makespan_us
            # Few pods have few ways to trade; the whole is then small enough for other searches.
            if len(pods.pods) <= _FEW and idle >= _PATIENCE:
                return

    def _offer(self, pods: Pods) -> None:
        """Whole schedules take time: they are made when the slowest pod has become faster."""
        schedule = self._best.schedule
        if schedule is None or pods.makespan_us < schedule.makespan_us:
            self._best.offer(pods.schedule(), "pods")

    def _spent(self, placed: int) -> bool:
        self._clock.spend(placed / _PLACED_PER_UNIT)
        return self._over()


def _exchange(pods: Pods, helpers: Sequence[Helper]) -> None:
    """Takes what the helpers have found and gives them more to try."""
    for helper in helpers:
        for answer in helper.answers():
            pods.remember(*answer)
            pods.settle(*answer)
    for helper in helpers:
        if helper.wants() and (trades := pods.trades(_BATCH)):
            helper.send(trades)
