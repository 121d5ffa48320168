"""Batching and placement together: which clips share a micro-batch, on which devices, and when.

The relaxation (deadlines and device time, exact by dynamic programming) gives a bound for every
batching and first batchings. These meet in a contest, with their neighbours later on; the full
solver spends what is left of the time on the winner. On many nodes the full solver itself, which
cuts such problems into pods, is what batchings are compared by, and where memory may be short over
time, of which list schedules know nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from arachne_opt.solvers.cascade.batching_contest import Contest
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_search import BatchingSearch
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.large import is_large
from arachne_opt.solvers.cascade.room import Room
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.registry import PORTFOLIO, cascade_solver
from arachne_opt.solvers.seeds.policy_file import CASCADES, PolicyFile
from arachne_opt.solvers.seeds.shipped import SHIPPED, Shipped, resolved

# Shares of the time: to place one batching at first, and until the contest has ended.
_PLACE_SHARE, _CONTEST_SHARE = 0.05, 0.85
# Where the full solver compares: for the first and the second placing of so many batchings.
_FEW_SHARES, _FEW = (0.08, 0.16), 4

_STRETCHES = (1.0, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingResult:
    """The batching found, its placement problem, and the result of placing it.

    Args:
        bound_us: proven lower bound of the makespan over all batchings of the candidates;
            ``result.bound_us`` holds for the chosen batching alone and may be higher.
        tried: batchings that were placed.
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
    known = resolved(policy, CASCADES) if solver == PORTFOLIO else None
    method = cascade_solver(solver, policy=known)
    placer = _Placer(problem, limits, clock, method, on_progress, bound_us)
    firsts = list(_first_batchings(digest, bound_us, start))
    few = _need_solver([placer.problem_of(batching) for batching in firsts[:_FEW]])
    contest = None if few else _begun(BatchingSearch(digest, limits.seed), placer, known, firsts)
    first = placer.place(firsts[0], start_plan, _PLACE_SHARE)
    if contest is None:
        best, tried = _best_of_few(placer, first, firsts[:_FEW])
    else:
        contest.trial(first.batching).know(first.plan)
        contest.run()
        best, tried = _finished(contest, placer, first), contest.tried
    return BatchingResult(
        batching=best.batching,
        problem=best.problem,
        result=replace(best.result, solver=f"batching+{solver}", wall_s=clock.wall_s()),
        bound_us=min(bound_us, best.objective_us),
        tried=tried,
    )


def _need_solver(problems: Sequence[CascadeProblem]) -> bool:
    """Whether list schedules say too little to compare batchings of these problems by them."""
    if is_large(Digest(problems[0])):
        return True
    return any(one.resident_bytes and Room(one).may_be_short() for one in problems)


def _begun(
    search: BatchingSearch,
    placer: _Placer,
    policy: PolicyFile | None,
    batchings: Sequence[Batching],
) -> Contest:
    """A contest that has taken in some batchings."""
    limits, clock = placer.limits, placer.clock

    def over() -> bool:
        return clock.over() or placer.content(contest.best.makespan_us)

    until = _CONTEST_SHARE * limits.time_limit_s
    contest = Contest(search, policy, clock, limits, over, until)
    contest.begin(batchings)
    return contest


def _finished(contest: Contest, placer: _Placer, first: _Placed) -> _Placed:
    """The winner of a contest, or the batching that was placed first, after all the time."""
    best = contest.best
    done = first.done or placer.clock.over() or placer.content(first.objective_us)
    if best.batching == first.batching and best.plan.makespan_us >= first.objective_us and done:
        return first
    last = placer.place(best.batching, best.plan)
    # Neighbours may be short of memory over time where the first batchings are not.
    return last if last.objective_us <= first.objective_us else first


def _best_of_few(
    placer: _Placer, first: _Placed, batchings: Sequence[Batching]
) -> tuple[_Placed, int]:
    """The best of some batchings after all the time, and how many were placed."""
    known = {first.batching: first}
    live = list(batchings)
    for share in (*_FEW_SHARES, 1.0):
        for batching in live:
            if placer.clock.over() or placer.content(_least_us(known)):
                break
            before = known.get(batching)
            placed = placer.place(batching, before.plan if before else None, share)
            if before is None or placed.objective_us <= before.objective_us:
                known[batching] = placed
        live = sorted(known, key=lambda batching: known[batching].objective_us)
        live = live[: (len(live) + 1) // 2]
    return known[live[0]], len(known)


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


def _least_us(placed: Mapping[Batching, _Placed]) -> int:
    return min(one.objective_us for one in placed.values())


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
