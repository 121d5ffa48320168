"""One batching in a contest: its placement is searched by races of walks, turn by turn."""

from __future__ import annotations

from arachne_opt.cascade.batching import Batching
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.rule_draws import RuleDraws
from arachne_opt.solvers.cascade.schedule import from_plan, in_start_order, to_plan
from arachne_opt.solvers.cascade.walks.cooling import Progress
from arachne_opt.solvers.cascade.walks.race_search import RaceSearch
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.solvers.seeds.policy_file import PolicyFile


class Trial:
    """A batching and the best list schedule that was found for it.

    Args:
        batching: what is tried.
        problem: its placement problem; memory over time does not count here.
        policy: draws beginnings of walks, rules do where it is None.
        seed: of the search.
    """

    def __init__(
        self, batching: Batching, problem: CascadeProblem, policy: PolicyFile | None, seed: int
    ) -> None:
        self.batching, self.problem = batching, problem
        self._digest = Digest(problem)
        self._bound_us = lower_bound(self._digest)
        self._search = _search(self._digest, policy, self._bound_us, seed)
        self.placed_per_unit = self._search.placed_per_unit
        self._search.begin()
        # Of the best before this turn: other threads may ask.
        self.makespan_us = self._search.makespan_us

    @property
    def plan(self) -> CascadePlan:
        """The best so far."""
        return to_plan(self._digest, in_start_order(self._digest, self._search.schedule))

    @property
    def done(self) -> bool:
        """Whether nothing shorter can be found for this batching."""
        return self.makespan_us <= self._bound_us

    def know(self, plan: CascadePlan) -> None:
        """Takes a plan as one that was found; one that does not fit the problem is passed over."""
        schedule = from_plan(self._digest, plan)
        if schedule is not None:
            self._search.know(schedule)
            self.makespan_us = self._search.makespan_us

    def turn(self, progress: Progress) -> None:
        """Searches on until the turn is over."""
        for _ in self._search.turn(progress):
            pass
        self.makespan_us = self._search.makespan_us


def _search(digest: Digest, policy: PolicyFile | None, bound_us: int, seed: int) -> RaceSearch:
    if policy is not None:
        # Late: numpy is needed for this only.
        from arachne_opt.solvers.seeds.cascades import Advised, SeedSearch

        return SeedSearch(Advised(FastDecoder(digest), policy, bound_us), seed)
    walks = Walks(digest)
    draws = RuleDraws(digest, walks.table, seed)
    return RaceSearch(walks, walks.walker(seed), lambda: draws.choice(bound_us))
