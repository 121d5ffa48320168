"""Answers a planning request: look up, solve, check, store. The one orchestration."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arachne_opt.canonical import digest
from arachne_opt.cascade.batching import BatchingProblem, batching_of_ids
from arachne_opt.cascade.batching_key import CLIPS, clips_to_json
from arachne_opt.cascade.plan import CascadePlan, from_canonical, plan_from_json, to_canonical
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InfeasibleError, NoPlanError
from arachne_opt.planning.kept_plans import Kept, WaitCallback, one_at_a_time, sound_plan
from arachne_opt.planning.policies import policy_in_use
from arachne_opt.planning.warm_starts import Start, cascade_start
from arachne_opt.records import PlanRecord
from arachne_opt.solvers.base import (
    CascadeSolver,
    Limits,
    ProgressCallback,
    Result,
    Status,
    StopCheck,
)
from arachne_opt.workload import Iteration

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.solvers.seeds.policy_file import PolicyFile

DEFAULT_SOLVER = "portfolio"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A verified plan in the numbering of the problem that was asked.

    Args:
        cached: the plan was found, not solved for.
        lookup_s: time of the look-up in the database, 0 without one.
        interrupted: the search was ended by the user; the plan is the best so far.
        warm_from: id of the stored plan that the search began with, empty for none.
    """

    problem: CascadeProblem
    plan: CascadePlan
    record: PlanRecord
    cached: bool
    lookup_s: float
    interrupted: bool = False
    warm_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingAnswer:
    """A batching with the verified plan of its micro-batches.

    Args:
        iteration: the micro-batches; every clip is in exactly one.
        bound_us: no batching of the candidates has a shorter makespan.
    """

    iteration: Iteration
    answer: Answer
    bound_us: int

    @property
    def gap(self) -> float | None:
        """(makespan - bound) / bound over all batchings, None without a bound."""
        if self.bound_us <= 0:
            return None
        return (self.answer.record.objective_us - self.bound_us) / self.bound_us


class PlanService:
    """Plans through a database; without a store every request is solved afresh.

    Args:
        store: the database.
        seeds: searches begin with what a learned policy says.
    """

    def __init__(self, store: PlanStore | None, *, seeds: bool = True) -> None:
        self._store = store
        self._seeds = seeds

    def plan_cascade(
        self,
        problem: CascadeProblem,
        limits: Limits,
        *,
        solver: str = DEFAULT_SOLVER,
        use_cache: bool = True,
        on_progress: ProgressCallback | None = None,
        should_stop: StopCheck | None = None,
        start_plan: CascadePlan | None = None,
        warm_start: str | None = None,
        on_wait: WaitCallback | None = None,
    ) -> Answer:
        """A checked and simulated plan, from the database where a good enough one is kept.

        A kept plan is good enough when it is proven optimal, when its gap is within the asked
        one, or when the same solver already had at least this much time for it. The search begins
        with the plan that ``warm_start`` names, else with a kept one that is not good enough, else
        with ``start_plan``, else with what the nearest stored problem suggests. An equal request
        that another process is solving is waited for.

        Raises:
            InputError: ``warm_start`` names no plan, or one that is of no use here.
            InfeasibleError: no plan exists.
            NoPlanError: the limit passed before a plan was found.
            DisagreementError: the plan found does not pass the checker and the simulator.
            StoreError: the database cannot be used.
        """
        fingerprint = problem.fingerprint()
        if use_cache and (answer := self._look_up(problem, fingerprint, limits, solver)):
            return answer
        with self._alone(fingerprint, limits, use_cache, on_wait, should_stop):
            # Somebody else may have solved it while this process waited.
            if use_cache and (answer := self._look_up(problem, fingerprint, limits, solver)):
                return answer
            start = self._start(problem, fingerprint, use_cache, start_plan, warm_start)
            plan = start.plan if start else None
            named = self._solver(solver)
            result = named.solve(
                problem, limits, on_progress=on_progress, should_stop=should_stop, start_plan=plan
            )
            answer = self._keep(problem, fingerprint, limits, _proven_plan(problem, result))
        return dataclasses.replace(answer, warm_from=start.source if start else "")

    def plan_batching(
        self,
        problem: BatchingProblem,
        limits: Limits,
        *,
        bucketed: tuple[Iteration, Answer] | None = None,
        solver: str = DEFAULT_SOLVER,
        use_cache: bool = True,
        on_progress: ProgressCallback | None = None,
        should_stop: StopCheck | None = None,
    ) -> BatchingAnswer:
        """The clips of an iteration in micro-batches, with a checked and simulated plan.

        The plan is kept twice: for the micro-batches chosen, as any plan, and for the clips.

        Args:
            problem: the clips with all priced micro-batches.
            limits: the time is for batching and placing together.
            bucketed: another grouping of the clips with its plan, to begin with.
            solver: places micro-batches.
            use_cache: take a plan that is kept for these clips, where it is good enough.
            on_progress: told of every improvement.
            should_stop: asked often.
        """
        fingerprint = problem.fingerprint()
        method = f"batching+{solver}"
        if use_cache and (found := self._look_up_batching(problem, fingerprint, limits, method)):
            return found
        start, plan = None, None
        if bucketed is not None:
            start = problem.batching_of(bucketed[0])
            plan = problem.carry_over(bucketed[0], bucketed[1].plan)
        with self._alone(fingerprint, limits, use_cache, None, should_stop):
            if use_cache:
                found = self._look_up_batching(problem, fingerprint, limits, method)
                if found is not None:
                    return found
            from arachne_opt.solvers.cascade.batching import solve_batching

            solved = solve_batching(
                problem,
                limits,
                start=start,
                start_plan=plan,
                solver=solver,
                on_progress=on_progress,
                should_stop=should_stop,
            )
            answer = self.keep(solved.problem, solved.result, limits)
            if self._store is not None:
                self._store.add_plan(_for_clips(answer.record, problem, solved.bound_us))
        iteration = problem.iteration(solved.batching)
        return BatchingAnswer(iteration=iteration, answer=answer, bound_us=solved.bound_us)

    def _look_up_batching(
        self, problem: BatchingProblem, fingerprint: str, limits: Limits, method: str
    ) -> BatchingAnswer | None:
        if self._store is None:
            return None
        begin = time.perf_counter()
        record = self._store.find_plan(fingerprint)
        lookup_s = time.perf_counter() - begin
        if record is None or not content(record, limits, method):
            return None
        batching = batching_of_ids(c.id for c in problem_from_json(record.problem).cascades)
        chosen = problem.placement_problem(batching)
        plan = plan_of_record(record, chosen)
        verify(chosen, plan, record.objective_us)
        answer = Answer(problem=chosen, plan=plan, record=record, cached=True, lookup_s=lookup_s)
        iteration = problem.iteration(batching)
        return BatchingAnswer(iteration=iteration, answer=answer, bound_us=record.bound_us)

    def keep(self, problem: CascadeProblem, result: Result, limits: Limits) -> Answer:
        """Verifies and stores the result of a solve that was made elsewhere."""
        return self._keep(problem, problem.fingerprint(), limits, _proven_plan(problem, result))

    def kept_answer(self, problem: CascadeProblem, limits: Limits, solver: str) -> Answer | None:
        """The answer from the database, None where no plan there is good enough."""
        return self._look_up(problem, problem.fingerprint(), limits, solver)

    def policy(self) -> PolicyFile | None:
        """What searches begin with."""
        return policy_in_use(self._store, "cascades", self._seeds)

    def _look_up(
        self, problem: CascadeProblem, fingerprint: str, limits: Limits, solver: str
    ) -> Answer | None:
        kept = self._kept(problem, fingerprint, lambda r: content(r, limits, solver))
        if kept is None:
            return None
        return Answer(
            problem=problem,
            plan=kept.plan,
            record=kept.record,
            cached=True,
            lookup_s=kept.lookup_s,
        )

    def _kept(
        self,
        problem: CascadeProblem,
        fingerprint: str,
        wanted: Callable[[PlanRecord], bool] | None = None,
    ) -> Kept[CascadePlan] | None:
        """The best stored plan, checked and simulated, in the problem's numbering."""

        def read(record: PlanRecord) -> CascadePlan:
            plan = plan_of_record(record, problem)
            verify(problem, plan, record.objective_us)
            return plan

        return sound_plan(self._store, fingerprint, read, wanted)

    def _start(
        self,
        problem: CascadeProblem,
        fingerprint: str,
        use_cache: bool,
        start_plan: CascadePlan | None,
        warm_start: str | None,
    ) -> Start[CascadePlan] | None:
        if warm_start is not None and self._store is not None:
            return cascade_start(self._store, problem, warm_start)
        kept = self._kept(problem, fingerprint) if use_cache else None
        if kept is not None:
            return Start(plan=kept.plan, source=kept.record.id)
        if start_plan is not None:
            return Start(plan=start_plan, source="")
        return cascade_start(self._store, problem) if use_cache and self._store else None

    def _alone(
        self,
        fingerprint: str,
        limits: Limits,
        use_cache: bool,
        on_wait: WaitCallback | None,
        should_stop: StopCheck | None,
    ) -> AbstractContextManager[object]:
        # Who takes no kept plan gains nothing from waiting for one.
        store = self._store if use_cache else None
        return one_at_a_time(store, fingerprint, limits, on_wait, should_stop)

    def _solver(self, name: str) -> CascadeSolver:
        # Late: a hit must not pay for loading the solvers.
        from arachne_opt.solvers.registry import cascade_solver

        return cascade_solver(name, policy=self.policy())

    def _keep(
        self, problem: CascadeProblem, fingerprint: str, limits: Limits, result: _Solved
    ) -> Answer:
        plan = result.plan
        verify(problem, plan, result.objective_us)
        record = _record(problem, fingerprint, limits, result)
        if self._store is not None:
            record = self._store.add_plan(record)
        return Answer(
            problem=problem,
            plan=plan,
            record=record,
            cached=False,
            lookup_s=0.0,
            interrupted=result.result.interrupted,
        )


@dataclass(frozen=True, slots=True)
class _Solved:
    """A result that has a plan."""

    result: Result
    plan: CascadePlan
    objective_us: int


def plan_of_record(record: PlanRecord, problem: CascadeProblem | None = None) -> CascadePlan:
    """The stored plan in the numbering of an equal problem, or of the one that it was made for."""
    asked = problem_from_json(record.problem)
    plan = plan_from_json(record.plan, asked)
    if problem is None:
        return plan
    return from_canonical(to_canonical(plan, asked), problem)


def content(record: PlanRecord, limits: Limits, solver: str) -> bool:
    """Whether a kept plan is good enough for a request."""
    if record.status == Status.OPTIMAL or (record.gap is not None and record.gap <= limits.gap):
        return True
    return record.solver == solver and record.time_limit_s >= limits.time_limit_s


def _proven_plan(problem: CascadeProblem, result: Result) -> _Solved:
    if result.plan is not None and result.objective_us is not None:
        return _Solved(result, result.plan, result.objective_us)
    if result.status is Status.INFEASIBLE:
        binding = "; ".join(result.binding) or "the limits together"
        raise InfeasibleError(f"no plan exists: {binding}", where=problem.name)
    hint = "a longer --time-limit"
    raise NoPlanError("the time limit passed before a plan", where=problem.name, hint=hint)


def _for_clips(record: PlanRecord, problem: BatchingProblem, bound_us: int) -> PlanRecord:
    """The record under the key of the clips, with the bound that holds for every batching."""
    done = record.objective_us <= bound_us
    return dataclasses.replace(
        record,
        fingerprint=problem.fingerprint(),
        name=f"{record.name} (clips)",
        problem={**record.problem, CLIPS: clips_to_json(problem)},
        bound_us=bound_us,
        status=(Status.OPTIMAL if done else Status.FEASIBLE).value,
    )


def _record(
    problem: CascadeProblem, fingerprint: str, limits: Limits, solved: _Solved
) -> PlanRecord:
    result = solved.result
    record = PlanRecord(
        kind="cascade",
        name=problem.name,
        fingerprint=fingerprint,
        cluster_fingerprint=digest(problem.cluster.canonical()),
        cluster_name=problem.cluster.name,
        cost_version=problem.cost_version,
        problem=problem_to_json(problem),
        plan=solved.plan.to_json(problem),
        status=result.status.value,
        objective_us=solved.objective_us,
        bound_us=result.bound_us,
        solver=result.solver,
        seed=result.seed,
        wall_s=result.wall_s,
        time_limit_s=limits.time_limit_s,
        verdict="legal",
        versions=dict(result.versions),
    )
    if result.interrupted:
        return dataclasses.replace(record, time_limit_s=result.wall_s)
    return record
