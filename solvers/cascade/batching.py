"""Batching and placement together: which clips share a micro-batch, on which devices, and when.

The relaxation (deadlines and device time, exact by dynamic programming) gives a bound for every
batching and first batchings. The full solver places one of them; annealing of list schedules goes
on from there and changes micro-batches, too; the full solver spends what is left of the time on the
best that it found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from arachne_opt.cascade.batching import Batching, BatchingProblem
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import (
    CascadeSolver,
    Limits,
    Progress,
    ProgressCallback,
    Result,
    Status,
    StopCheck,
)
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_helper import Walk, batching_helpers
from arachne_opt.solvers.cascade.batching_search import NEAR, BatchingSearch, State
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.registry import PORTFOLIO, cascade_solver
from arachne_opt.solvers.seeds.policy_file import CASCADES, PolicyFile
from arachne_opt.solvers.seeds.shipped import SHIPPED, Shipped, resolved

# Shares of the time: first batchings, at most; a plan for one of them; then walks up to so much,
# in rounds that each begin with the best. The rest is for the best batching.
_SEED_SHARE, _PLACE_SHARE, _ANNEAL_SHARE = 0.1, 0.45, 0.97
_ROUNDS = 2
# Rounds end where the best list schedule is so many times as long as a placed plan.
_HOPELESS = 1.03
# Seconds that are worth another process, to wait for it, and between looks at it.
_LEAST_WALK_S, _PATIENCE_S, _NAP_S = 1.0, 0.1, 0.005

_STRETCHES = (1.0, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingResult:
    """The batching found, its placement problem, and the result of placing it.

    Args:
        bound_us: proven lower bound of the makespan over all batchings of the candidates;
            ``result.bound_us`` holds for the chosen batching alone and may be higher.
        tried: list schedules that were made.
    """

    batching: Batching
    problem: CascadeProblem
    result: Result
    bound_us: int
    tried: int

    @property
    def gap(self) -> float | None:
        """(objective - bound) / bound over all batchings."""
        if self.result.objective_us is None or self.bound_us <= 0:
            return None
        return (self.result.objective_us - self.bound_us) / self.bound_us


@dataclass(frozen=True, slots=True)
class _Placed:
    """A batching with the best plan known for it."""

    batching: Batching
    problem: CascadeProblem
    result: Result

    @property
    def objective_us(self) -> int:
        """Makespan of the plan."""
        assert self.result.objective_us is not None
        return self.result.objective_us

    @property
    def plan(self) -> CascadePlan:
        """The plan."""
        assert self.result.plan is not None
        return self.result.plan

    @property
    def done(self) -> bool:
        """Whether nothing is left to be found for this batching."""
        return self.result.status is Status.OPTIMAL


def solve_batching(
    problem: BatchingProblem,
    limits: Limits,
    *,
    start: Batching | None = None,
    start_plan: CascadePlan | None = None,
    solver: str = PORTFOLIO,
    policy: PolicyFile | Shipped | None = SHIPPED,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCheck | None = None,
) -> BatchingResult:
    """The best batching found within the limits, placed and bounded.

    Args:
        problem: clips with all priced micro-batches.
        limits: the time is for batching and placing together.
        start: a batching to begin with, such as that of buckets.
        start_plan: a plan for ``start``; the answer is then never worse.
        solver: the method that places micro-batches, by name.
        policy: begins searches of the portfolio, see ``cascade_solver``.
        on_progress: told of every better plan; the bounds told hold for every batching.
        should_stop: asked often.
    """
    clock = Clock(limits, should_stop)
    digest = BatchingDigest(problem)
    bound_us = digest.lower_bound()
    search = BatchingSearch(digest, bound_us, limits.seed)
    known = resolved(policy, CASCADES) if solver == PORTFOLIO else None
    method = cascade_solver(solver, policy=known)
    placer = _Placer(problem, limits, clock, method, on_progress, bound_us)
    for batching in _first_batchings(digest, bound_us, start):
        placed = search.seed(batching) * sum(map(len, batching))
        clock.spend(placed / search.placed_per_unit)
        if clock.stopped() or clock.elapsed() > _SEED_SHARE * limits.time_limit_s:
            break
    with _Walkers(search, placer, known) as walkers:
        first = placer.place(*_first(search, placer, start, start_plan), _PLACE_SHARE)
        _anneal(search, placer, first)
        walkers.take()
    best = _finished(search, placer, first)
    return BatchingResult(
        batching=best.batching,
        problem=best.problem,
        result=replace(best.result, solver=f"batching+{solver}", wall_s=clock.wall_s()),
        bound_us=min(bound_us, best.objective_us),
        tried=search.tried,
    )


def _first(
    search: BatchingSearch, placer: _Placer, start: Batching | None, start_plan: CascadePlan | None
) -> tuple[Batching, CascadePlan | None]:
    """What to place before the search: what was given, or else the best so far."""
    if start is not None:
        return start, start_plan
    batching = search.batching(search.best)
    return batching, search.plan(search.best, placer.problem_of(batching))


class _Walkers:
    """Processes that anneal beside the main one, from the best state on, until they are closed."""

    def __init__(self, search: BatchingSearch, placer: _Placer, policy: PolicyFile | None) -> None:
        self._search, limits = search, placer.limits
        left_s = _ANNEAL_SHARE * limits.time_limit_s - placer.clock.elapsed()
        self._until_s = time.time() + left_s
        solved = placer.content(search.best.makespan_us)
        alone = limits.deterministic or left_s < _LEAST_WALK_S or solved
        count = 0 if alone else limits.workers - 1
        self._helpers = batching_helpers(search.digest.problem, policy, limits.seed, count)
        for helper in self._helpers:
            helper.ask(Walk(search.best, self._until_s))

    def __enter__(self) -> _Walkers:
        return self

    def __exit__(self, *_: object) -> None:
        for helper in self._helpers:
            helper.close()

    def take(self) -> None:
        """Takes what they have found, and waits for it a little where they have to be done."""
        while time.time() >= self._until_s and any(helper.busy() for helper in self._helpers):
            if time.time() > self._until_s + _PATIENCE_S:
                break
            time.sleep(_NAP_S)
        for helper in self._helpers:
            for answer in helper.answers():
                state: State = answer.found
                self._search.begun(*state.start)


def _anneal(search: BatchingSearch, placer: _Placer, first: _Placed) -> None:
    """Rounds of annealing after a placed batching, as long as they may lead further."""
    clock, limits = placer.clock, placer.limits
    at = search.start(first.problem, first.plan)
    for number in range(_ROUNDS):
        best_us = search.best.makespan_us
        hopeless = number > 0 and best_us > _HOPELESS * first.objective_us
        if placer.content(min(first.objective_us, best_us)) or clock.over() or hopeless:
            return
        search.anneal(at, NEAR, _progress(clock, limits, search, number))
        at = search.best


def _finished(search: BatchingSearch, placer: _Placer, first: _Placed) -> _Placed:
    """The best of a placed batching and of what the search has found, after all the time."""
    batching = search.batching(search.best)
    plan = search.plan(search.best, placer.problem_of(batching))
    if plan.makespan_us >= first.objective_us:
        batching, plan = first.batching, first.plan
    done = first.done or placer.clock.over() or placer.content(first.objective_us)
    if batching == first.batching and done:
        return first
    last = placer.place(batching, plan)
    # List schedules do not count memory over time, so that the plan may not have been possible.
    return last if last.objective_us <= first.objective_us else first


def _first_batchings(
    digest: BatchingDigest, bound_us: int, start: Batching | None
) -> Iterator[Batching]:
    """The given batching, and the cheapest ones for several deadlines."""
    seen: set[Batching] = set()
    if start is not None:
        seen.add(start)
        yield start
    for stretch in _STRETCHES:
        cut = digest.cheapest_cut(round(bound_us * stretch))
        if cut is not None and cut.batching not in seen:
            seen.add(cut.batching)
            yield cut.batching


def _progress(
    clock: Clock, limits: Limits, search: BatchingSearch, number: int
) -> Callable[[int], float]:
    """The share of a round of annealing that is done, by time or by placed tasks."""
    begin = clock.elapsed()
    left = _ANNEAL_SHARE * limits.time_limit_s - begin
    length = max(1e-6, left / (_ROUNDS - number))

    def share(placed: int) -> float:
        clock.spend(placed / search.placed_per_unit)
        return 1.0 if clock.stopped() else min(1.0, (clock.elapsed() - begin) / length)

    return share


class _Placer:
    """Places batchings with the full solver, within what is left of one clock."""

    def __init__(
        self,
        problem: BatchingProblem,
        limits: Limits,
        clock: Clock,
        solver: CascadeSolver,
        on_progress: ProgressCallback | None,
        bound_us: int,
    ) -> None:
        self._problem = problem
        self.limits = limits
        self.clock = clock
        self._solver = solver
        self._on_progress = on_progress
        self._bound_us = bound_us
        # Proven for single batchings.
        self._bounds: dict[Batching, int] = {}
        self._told_us: int | None = None

    def problem_of(self, batching: Batching) -> CascadeProblem:
        """The placement problem of a batching."""
        return self._problem.placement_problem(batching)

    def content(self, makespan_us: int) -> bool:
        """Whether a plan is within the asked gap to the bound of all batchings."""
        return makespan_us <= self._bound_us * (1 + self.limits.gap)

    def place(self, batching: Batching, start: CascadePlan | None, share: float = 1.0) -> _Placed:
        """A batching placed in a share of all the time, beginning with a plan."""
        problem = self.problem_of(batching)
        limit_s = max(min(share * self.limits.time_limit_s, self.clock.left()), 1e-3)
        limits = replace(self.limits, time_limit_s=limit_s)
        before_s = self.clock.wall_s()
        result = self._solver.solve(
            problem,
            limits,
            on_progress=lambda progress: self._tell(progress, before_s),
            should_stop=self.clock.stopped,
            start_plan=start,
        )
        self.clock.spend(limit_s)
        return _Placed(batching, problem, self._with_bound(batching, result))

    def _with_bound(self, batching: Batching, result: Result) -> Result:
        """The result with the best bound that is proven for its batching."""
        assert result.objective_us is not None
        bound_us = max(result.bound_us, self._bounds.get(batching, 0))
        self._bounds[batching] = bound_us
        done = result.objective_us <= bound_us
        status = Status.OPTIMAL if done else Status.FEASIBLE
        return replace(result, bound_us=min(bound_us, result.objective_us), status=status)

    def _tell(self, progress: Progress, before_s: float) -> None:
        """Passes on what is better than all that was told, with the bound of all batchings."""
        better = progress.objective_us
        if self._on_progress is None or better is None:
            return
        if self._told_us is None or better < self._told_us:
            self._told_us = better
            elapsed_s = before_s + progress.elapsed_s
            bound_us = min(self._bound_us, better)
            self._on_progress(replace(progress, elapsed_s=elapsed_s, bound_us=bound_us))
