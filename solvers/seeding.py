"""The search that a learned policy begins, beside others on the one clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import in_start_order
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.seeds.policy_file import PolicyFile

if TYPE_CHECKING:
    from arachne_opt.solvers.seeds.cascades import SeedSearch

# What was found is reported after so much of the limit; tasks placed in a unit of work.
_REPORTED, _PLACED_PER_UNIT = 0.2, 100_000


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

    def run(self, length: float, over: Callable[[], bool]) -> bool:
        """Goes on for so much of the limit; whether that gave the best schedule so far.

        It ends earlier where it leads no further; the next turn begins anew.

        Args:
            length: seconds, or units of work.
            over: whether the search must end; asked at every list schedule.
        """
        end = self._clock.elapsed() + length
        found = False
        search = self._begun()
        while True:
            found |= self._turn(search, min(end, self._clock.elapsed() + _REPORTED), over)
            done = self._best.gap() <= 0 or search.stale
            if done or over() or self._clock.elapsed() >= end:
                return found

    def _turn(self, search: SeedSearch, end: float, over: Callable[[], bool]) -> bool:
        """Goes on until a time; whether that gave the best schedule so far."""

        def spent(placed: int) -> bool:
            self._clock.spend(placed / _PLACED_PER_UNIT)
            return over() or self._clock.elapsed() >= end

        known = self._best.schedule
        if not search.run(spent, None if known is None else known.makespan_us):
            return False
        schedule = in_start_order(self._digest, search.schedule)
        self.makespan_us = schedule.makespan_us
        return self._best.offer(schedule, "learned")

    def _begun(self) -> SeedSearch:
        if self._search is None:
            # Late: numpy is needed for this only.
            from arachne_opt.solvers.seeds.cascades import SeedSearch

            decoder = FastDecoder(self._digest)
            self._search = SeedSearch(decoder, self._policy, self._best.bound_us, self._seed)
        return self._search
