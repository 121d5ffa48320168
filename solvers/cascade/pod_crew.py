"""Trades of pods in threads beside the main one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pod_walk import Pod, Wanted
from arachne_opt.solvers.cascade.pods import Pods, Trade


class PodCrew:
    """Threads that search what trades want; only the main one knows pods and settles trades.

    Args:
        count: threads.
    """

    def __init__(self, pods: Pods, solver: PodSolver, count: int) -> None:
        self._pods, self._solver, self._count = pods, solver, count
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(max(1, count), thread_name_prefix="pods")
        self._busy: list[tuple[Sequence[Trade], Future[list[Pod]]]] = []

    def exchange(self, work: float) -> None:
        """Takes what was found, and gives every idle thread trades of so much work."""
        for trades, future in [row for row in self._busy if row[1].done()]:
            for pod in future.result():
                self._solver.remember(pod)
            self._pods.settled(trades)
        self._busy = [row for row in self._busy if not row[1].done()]
        while len(self._busy) < self._count and (trades := self._pods.trades(work)):
            wanted = self._solver.unknown(w for trade in trades for w in trade.wanted)
            self._busy.append((trades, self._threads.submit(self._searched, wanted)))

    def idle(self) -> bool:
        """Whether everything that was given is done."""
        return all(future.done() for _, future in self._busy)

    def close(self) -> None:
        """Ends the threads; each is in the middle of a walk of milliseconds at most."""
        self._stop.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _searched(self, wanted: Sequence[Wanted]) -> list[Pod]:
        found = []
        for want in wanted:
            if self._stop.is_set():
                break
            found.append(self._solver.walk.search(want, lambda _: self._stop.is_set()))
        return found
