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
        return self._begun().odds

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
            # Late: numpy is needed for this only.
            from arachne_opt.solvers.seeds.cascades import SeedSearch

            decoder = FastDecoder(self._digest)
            self._search = SeedSearch(decoder, self._policy, self._best.bound_us, self._seed)
        return self._search
