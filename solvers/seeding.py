"""The search that a learned policy begins, beside others on the one clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import in_start_order
from arachne_opt.solvers.cascade.walks.cooling import Progress
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.seeds.policy_file import PolicyFile

if TYPE_CHECKING:
    from arachne_opt.solvers.seeds.cascades import Advised, SeedSearch

_REPORTED = 0.1  # of the limit, after which what was found is reported


class Seeding:
    """List schedules after a policy, in turns as long as they are wanted."""

    def __init__(
        self, digest: Digest, best: Incumbent, clock: Clock, policy: PolicyFile, seed: int
    ) -> None:
        self._digest, self._best, self._clock = digest, best, clock
        self._policy, self._seed = policy, seed
        self._search: SeedSearch | None = None
        # Its own best, once it has made one.
        self.makespan_us: int | None = None

    @property
    def leads(self) -> bool:
        """Whether nothing shorter than its own best is known."""
        best = self._best.schedule
        return self.makespan_us is not None and (
            best is None or self.makespan_us <= best.makespan_us
        )

    @property
    def odds(self) -> list[list[float]]:
        """What the policy thinks of the modes of each task, as walkers take it."""
        return self._advised.odds

    def run(self, length: float, over: Callable[[], bool]) -> bool:
        """A turn of so much of the limit; whether it gave the best schedule so far.

        Args:
            length: seconds, or units of work.
            over: whether the search must end; asked at every step.
        """
        search, begin, found = self._begun(), self._clock.elapsed(), False

        def progress(placed: int) -> float:
            self._clock.spend(placed / search.placed_per_unit)
            return 1.0 if over() else min(1.0, (self._clock.elapsed() - begin) / length)

        known = self._best.schedule
        told = begin
        for _ in search.turn(progress, None if known is None else known.makespan_us):
            if self._clock.elapsed() >= told + _REPORTED:
                told = self._clock.elapsed()
                found |= self._offer(search)
        return self._offer(search) or found

    def run_with(self, others: int, length: float, over: Callable[[], bool]) -> bool:
        """The same, while so many other threads race what they draw; the best of all goes on."""
        mine = self._begun()
        if others < 1 or not mine.beside:
            return self.run(length, over)
        ended, begin = threading.Event(), self._clock.elapsed()

        def progress(_: int) -> float:
            return 1.0 if ended.is_set() else (self._clock.elapsed() - begin) / length

        with ThreadPoolExecutor(others, thread_name_prefix="seeds") as threads:
            racing = [
                threads.submit(self._raced, self._seed + k, progress) for k in range(1, others + 1)
            ]
            try:
                found = self.run(length, over)
            finally:
                ended.set()  # whatever happens here, no thread goes on
        best = min((race.result() for race in racing), key=lambda search: search.makespan_us)
        if best.makespan_us < mine.makespan_us:
            found |= self._offer(best)
            mine.know(best.schedule)
        return found

    def _raced(self, seed: int, progress: Progress) -> SeedSearch:
        """Another search, after a turn."""
        search = self._new(seed)
        for _ in search.turn(progress):
            pass
        return search

    def _offer(self, search: SeedSearch) -> bool:
        best = self._best.schedule
        if best is not None and search.makespan_us >= best.makespan_us:
            self.makespan_us = search.makespan_us
            return False
        schedule = in_start_order(self._digest, search.schedule)
        self.makespan_us = schedule.makespan_us
        return self._best.offer(schedule, "learned")

    def _begun(self) -> SeedSearch:
        if self._search is None:
            self._search = self._new(self._seed)
        return self._search

    def _new(self, seed: int) -> SeedSearch:
        # Late: numpy is needed for this only.
        from arachne_opt.solvers.seeds.cascades import SeedSearch

        return SeedSearch(self._advised, seed)

    @cached_property
    def _advised(self) -> Advised:
        from arachne_opt.solvers.seeds.cascades import Advised

        return Advised(FastDecoder(self._digest), self._policy, self._best.bound_us)
