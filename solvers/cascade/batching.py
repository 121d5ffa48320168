"""Batching and placement together: which clips share a micro-batch, on which devices, and when.

The relaxation (deadlines and device time, exact by dynamic programming) gives a bound for every
batching and first batchings; annealing improves them under a quick list schedule; the full solver
places the best few and spends what is left of the time on the best of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from arachne_opt.cascade.batching import Batching, BatchingProblem
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Progress, ProgressCallback, Result, Status, StopCheck
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_search import BatchingSearch, State
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.list_schedule import decode
from arachne_opt.solvers.cascade.schedule import Run, in_start_order, left_shift, to_plan
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.registry import cascade_solver

# Shares of the time: first batchings, at most; rounds of annealing, each from the best so far; a
# look at each finalist. The winner has the rest.
_SEED_SHARE = 0.15
_ANNEAL_SHARE = 0.6
_ROUNDS = 3
_LOOK_SHARE = 0.08
_FINALISTS = 2

# Steps of annealing that count as one unit of deterministic work.
_STEPS_PER_UNIT = 1500
_STRETCHES = (1.0, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingResult:
    """The batching found, its placement problem, and the result of placing it.

    Args:
        bound_us: proven lower bound of the makespan over all batchings of the candidates;
            ``result.bound_us`` holds for the chosen batching alone and may be higher.
        tried: states that the search looked at.
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
class _Finalist:
    """A batching with the best plan known for it."""

    batching: Batching
    problem: CascadeProblem
    result: Result

    @property
    def objective_us(self) -> int:
        """Makespan of the plan."""
        assert self.result.objective_us is not None
        return self.result.objective_us


def solve_batching(
    problem: BatchingProblem,
    limits: Limits,
    *,
    start: Batching | None = None,
    start_plan: CascadePlan | None = None,
    solver: str = "portfolio",
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
        on_progress: told of every better plan; the bounds told hold for every batching.
        should_stop: asked often.
    """
    clock = Clock(limits, should_stop)
    digest = BatchingDigest(problem)
    bound_us = digest.lower_bound()
    search = BatchingSearch(digest, bound_us, limits.seed)
    placer = _Placer(problem, limits, clock, solver, on_progress, bound_us)
    finalists = [placer.look(*pair) for pair in _searched(search, placer, start)]
    if start is not None and start_plan is not None:
        finalists.append(placer.look(start, start_plan))
    best = placer.finish(min(finalists, key=lambda f: f.objective_us))
    return BatchingResult(
        batching=best.batching,
        problem=best.problem,
        result=replace(best.result, solver=f"batching+{solver}", wall_s=clock.wall_s()),
        bound_us=min(bound_us, best.objective_us),
        tried=search.tried,
    )


def _searched(
    search: BatchingSearch, placer: _Placer, start: Batching | None
) -> list[tuple[Batching, CascadePlan]]:
    """The batchings that deserve to be placed well, each with a plan to begin with."""
    clock, limits = placer.clock, placer.limits
    for batching in _first_batchings(search.digest, placer.bound_us, start):
        clock.spend(search.seed(batching) / _STEPS_PER_UNIT)
        if clock.stopped() or clock.elapsed() > _SEED_SHARE * limits.time_limit_s:
            break
    placed = _to_place(search, clock)
    for number in range(_ROUNDS):
        if placer.content(placed[0][1].makespan_us) or clock.over():
            break
        search.anneal(_progress(clock, limits, number))
        placed = _to_place(search, clock)
    return placed


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


def _progress(clock: Clock, limits: Limits, number: int) -> Callable[[], float]:
    """The share of a round of annealing that is done, by time or by steps."""
    end = _ANNEAL_SHARE * limits.time_limit_s * (number + 1) / _ROUNDS
    begin = clock.elapsed()

    def share() -> float:
        clock.spend(1 / _STEPS_PER_UNIT)
        if clock.stopped() or clock.elapsed() >= end:
            return 1.0
        return (clock.elapsed() - begin) / (end - begin)

    return share


def _to_place(search: BatchingSearch, clock: Clock) -> list[tuple[Batching, CascadePlan]]:
    """The batchings of the search that list scheduling places best, with these plans.

    At least one; the others only while there is time.
    """
    pairs: list[tuple[Batching, CascadePlan]] = []
    for scored in search.best():
        if pairs and clock.over():
            break
        pairs.append((scored.state.batching, _decoded(search, scored.state)))
    pairs.sort(key=lambda pair: pair[1].makespan_us)
    return pairs[: 1 if clock.over() else _FINALISTS]


def _decoded(search: BatchingSearch, state: State) -> CascadePlan:
    """The better plan of two: the estimate's own groups, or a list schedule in the same order."""
    digest = search.digest
    problem = digest.problem.placement_problem(state.batching)
    flat = Digest(problem)
    position = {cascade.id: c for c, cascade in enumerate(problem.cascades)}
    modes: dict[int, Mode] = {}
    priority: dict[int, int] = {}
    runs: list[Run] = []
    for (number, task), devices in search.schedule.groups(state).items():
        entry = state.entries[number]
        index = flat.cascades[position[entry.segment.id]][task]
        modes[index] = digest.fronts[entry.kind][entry.pick].modes[task]
        priority[index] = -len(runs)
        runs.append((index, devices))
    ordered = [modes[index] for index in range(len(flat.tasks))]
    schedules = [left_shift(flat, runs), decode(flat, ordered, priority)]
    best = min((in_start_order(flat, schedule) for schedule in schedules), key=lambda s: s.key)
    return to_plan(flat, best)


class _Placer:
    """Places batchings with the full solver, within what is left of one clock."""

    def __init__(
        self,
        problem: BatchingProblem,
        limits: Limits,
        clock: Clock,
        solver: str,
        on_progress: ProgressCallback | None,
        bound_us: int,
    ) -> None:
        self._problem = problem
        self.limits = limits
        self.clock = clock
        self._solver = cascade_solver(solver)
        self._on_progress = on_progress
        self.bound_us = bound_us
        self._told_us: int | None = None

    def content(self, makespan_us: int) -> bool:
        """Whether a plan is within the asked gap to the bound of all batchings."""
        return makespan_us <= self.bound_us * (1 + self.limits.gap)

    def look(self, batching: Batching, plan: CascadePlan) -> _Finalist:
        """A batching placed in a short time, beginning with a plan."""
        problem = self._problem.placement_problem(batching)
        seconds = _LOOK_SHARE * self.limits.time_limit_s
        return _Finalist(batching, problem, self._solve(problem, plan, seconds))

    def finish(self, best: _Finalist) -> _Finalist:
        """The finalist after all the time that is left."""
        if best.result.status is Status.OPTIMAL or self.clock.over():
            return best
        if self.content(best.objective_us):
            return best
        again = self._solve(best.problem, best.result.plan, self.clock.left())
        bound_us = max(again.bound_us, best.result.bound_us)
        if again.objective_us is None or again.objective_us > best.objective_us:
            again = best.result
        assert again.objective_us is not None
        done = again.objective_us <= bound_us
        status = Status.OPTIMAL if done else Status.FEASIBLE
        result = replace(again, bound_us=min(bound_us, again.objective_us), status=status)
        return replace(best, result=result)

    def _solve(self, problem: CascadeProblem, start: CascadePlan | None, limit_s: float) -> Result:
        limits = replace(self.limits, time_limit_s=max(limit_s, 1e-3))
        before_s = self.clock.wall_s()
        result = self._solver.solve(
            problem,
            limits,
            on_progress=lambda progress: self._tell(progress, before_s),
            should_stop=self.clock.stopped,
            start_plan=start,
        )
        self.clock.spend(limit_s)
        return result

    def _tell(self, progress: Progress, before_s: float) -> None:
        """Passes on what is better than all that was told, with the bound of all batchings."""
        better = progress.objective_us
        if self._on_progress is None or better is None:
            return
        if self._told_us is None or better < self._told_us:
            self._told_us = better
            elapsed_s = before_s + progress.elapsed_s
            bound_us = min(self.bound_us, better)
            self._on_progress(replace(progress, elapsed_s=elapsed_s, bound_us=bound_us))
