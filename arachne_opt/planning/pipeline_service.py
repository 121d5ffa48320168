"""Answers a pipeline request: look up, solve, check, price, store."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arachne_opt.canonical import digest
from arachne_opt.errors import DisagreementError, InfeasibleError, NoPlanError
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.plan_json import plan_from_json, plan_to_json
from arachne_opt.pipeline.problem import PipelineProblem, from_canonical, to_canonical
from arachne_opt.pipeline.problem_json import problem_from_json, problem_to_json
from arachne_opt.pipeline.verify import Verdict, verify
from arachne_opt.planning.kept_plans import WaitCallback, one_at_a_time, sound_plan
from arachne_opt.planning.policies import policy_in_use
from arachne_opt.planning.service import DEFAULT_SOLVER, content
from arachne_opt.planning.warm_starts import Start, pipeline_start
from arachne_opt.records import PlanRecord
from arachne_opt.solvers.base import Limits, Status, StopCheck
from arachne_opt.units import US_PER_S, us_from_seconds

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.solvers.pipeline.base import (
        PipelineCallback,
        PipelineResult,
        PipelineSolver,
    )

# The solver of stored plans that were made from older ones, when the cluster changed.
CHANGED_PLAN = "changed-plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineAnswer:
    """A verified plan in the numbering of the problem that was asked.

    Args:
        cached: the plan was found, not solved for.
        lookup_s: time of the look-up in the database, 0 without one.
        result: what the solver said, None for a cached plan.
        warm_from: id of the stored plan that the search began with, empty for none.
    """

    problem: PipelineProblem
    plan: PipelinePlan
    verdict: Verdict
    record: PlanRecord
    cached: bool
    lookup_s: float
    result: PipelineResult | None = None
    warm_from: str = ""


class PipelineService:
    """Pipeline plans through a database; without a store every request is solved afresh.

    Args:
        store: the database.
        seeds: searches begin with what a learned policy says.
    """

    def __init__(self, store: PlanStore | None, *, seeds: bool = True) -> None:
        self._store = store
        self._seeds = seeds

    def plan(
        self,
        problem: PipelineProblem,
        limits: Limits,
        *,
        solver: str = DEFAULT_SOLVER,
        use_cache: bool = True,
        on_progress: PipelineCallback | None = None,
        should_stop: StopCheck | None = None,
        start_plan: PipelinePlan | None = None,
        warm_start: str | None = None,
        on_wait: WaitCallback | None = None,
    ) -> PipelineAnswer:
        """A checked, priced and simulated plan, from the database where a good one is kept.

        The search begins with the plan that ``warm_start`` names, else with a kept one that is not
        good enough, else with ``start_plan``, else with what the nearest stored problem suggests.
        An equal request that another process is solving is waited for.

        Raises:
            InputError: ``warm_start`` names no plan, or one that is of no use here.
            InfeasibleError: no plan exists; names what binds.
            NoPlanError: the limit passed before a plan was found.
            DisagreementError: checker, price or simulator disagree with the solver.
            StoreError: the database cannot be used.
        """
        fingerprint = problem.fingerprint()
        if use_cache and (answer := self._look_up(problem, fingerprint, limits, solver)):
            return answer
        # Who takes no kept plan gains nothing from waiting for one.
        store = self._store if use_cache else None
        with one_at_a_time(store, fingerprint, limits, on_wait, should_stop):
            # Somebody else may have solved it while this process waited.
            if use_cache and (answer := self._look_up(problem, fingerprint, limits, solver)):
                return answer
            # Late: a hit must not pay for loading the solvers.
            from arachne_opt.costs.pipeline.tables import TableCosts

            start = self._start(problem, fingerprint, use_cache, start_plan, warm_start)
            plan = start.plan if start else None
            result = self._solver(solver).solve(
                problem,
                TableCosts(problem),
                limits,
                on_progress=on_progress,
                should_stop=should_stop,
                start_plan=plan,
            )
            answer = self._keep(problem, fingerprint, limits, result)
        return dataclasses.replace(answer, warm_from=start.source if start else "")

    def keep_plan(
        self,
        problem: PipelineProblem,
        plan: PipelinePlan,
        limits: Limits,
        *,
        like: PipelineAnswer | None = None,
    ) -> PipelineAnswer:
        """Verifies and stores a plan that was made from another one, such as after a change.

        Args:
            problem: what it is for.
            plan: with a node for every replica.
            limits: under which it was made.
            like: an answer to the same problem: its bound holds here too, and a plan that takes
                as long is stored as found by the same solver.

        Raises:
            DisagreementError: the plan is illegal.
        """
        known = (like.plan, like.verdict) if like else None
        price_s = price_plan(problem, plan).iteration_s
        verdict = verify(problem, plan, price_s, known=known)
        record = _record_of_change(problem, plan, verdict, limits, like)
        if self._store is not None:
            record = self._store.add_plan(record)
        return PipelineAnswer(
            problem=problem,
            plan=plan,
            verdict=verdict,
            record=record,
            cached=False,
            lookup_s=0.0,
            result=like.result if like else None,
        )

    def _look_up(
        self, problem: PipelineProblem, fingerprint: str, limits: Limits, solver: str
    ) -> PipelineAnswer | None:
        kept = sound_plan(
            self._store,
            fingerprint,
            lambda record: checked_plan(record, problem),
            lambda record: content(record, limits, solver),
        )
        if kept is None:
            return None
        plan, verdict = kept.plan
        return PipelineAnswer(
            problem=problem,
            plan=plan,
            verdict=verdict,
            record=kept.record,
            cached=True,
            lookup_s=kept.lookup_s,
        )

    def _start(
        self,
        problem: PipelineProblem,
        fingerprint: str,
        use_cache: bool,
        start_plan: PipelinePlan | None,
        warm_start: str | None,
    ) -> Start[PipelinePlan] | None:
        if warm_start is not None and self._store is not None:
            return pipeline_start(self._store, problem, warm_start)
        if use_cache:
            kept = sound_plan(self._store, fingerprint, lambda r: checked_plan(r, problem))
            if kept is not None:
                return Start(plan=kept.plan[0], source=kept.record.id)
        if start_plan is not None:
            return Start(plan=start_plan, source="")
        return pipeline_start(self._store, problem) if use_cache and self._store else None

    def _solver(self, name: str) -> PipelineSolver:
        from arachne_opt.solvers.registry import pipeline_solver

        return pipeline_solver(name, policy=policy_in_use(self._store, "templates", self._seeds))

    def _keep(
        self, problem: PipelineProblem, fingerprint: str, limits: Limits, result: PipelineResult
    ) -> PipelineAnswer:
        plan, iteration_s = _found(problem, result)
        verdict = verify(problem, plan, iteration_s)
        record = _record(problem, fingerprint, limits, result, plan, iteration_s)
        if self._store is not None:
            record = self._store.add_plan(record)
        return PipelineAnswer(
            problem=problem,
            plan=plan,
            verdict=verdict,
            record=record,
            cached=False,
            lookup_s=0.0,
            result=result,
        )


def checked_plan(record: PlanRecord, problem: PipelineProblem) -> tuple[PipelinePlan, Verdict]:
    """A stored plan with its verdict.

    Raises:
        InputError: it cannot be read.
        DisagreementError: it is illegal, or its price is not the one that is stored.
    """
    plan = pipeline_plan_of_record(record, problem)
    price_s = price_plan(problem, plan).iteration_s
    if us_from_seconds(price_s) != record.objective_us:
        what = f"stored with {record.objective_us} us, the tables say {price_s} s"
        raise DisagreementError(what, where=f"plan {record.id}")
    return plan, verify(problem, plan, price_s)


def pipeline_plan_of_record(
    record: PlanRecord, problem: PipelineProblem | None = None
) -> PipelinePlan:
    """The stored plan in the numbering of an equal problem, or of the one that it was made for."""
    plan = plan_from_json(record.plan)
    if problem is None:
        return plan
    return from_canonical(to_canonical(plan, problem_from_json(record.problem)), problem)


def _found(problem: PipelineProblem, result: PipelineResult) -> tuple[PipelinePlan, float]:
    if result.plan is not None and result.iteration_s is not None:
        return result.plan, result.iteration_s
    if result.status is Status.INFEASIBLE:
        binding = "; ".join(result.binding) or "the limits together"
        raise InfeasibleError(f"no plan exists: {binding}", where=problem.name)
    hint = "a longer --time-limit"
    raise NoPlanError("the time limit passed before a plan", where=problem.name, hint=hint)


def _record(
    problem: PipelineProblem,
    fingerprint: str,
    limits: Limits,
    result: PipelineResult,
    plan: PipelinePlan,
    iteration_s: float,
) -> PlanRecord:
    record = PlanRecord(
        kind="pipeline",
        name=problem.name,
        fingerprint=fingerprint,
        cluster_fingerprint=digest(problem.cluster.canonical()),
        cluster_name=problem.cluster.name,
        cost_version=problem.cost_version,
        problem=problem_to_json(problem),
        plan=plan_to_json(plan),
        status=result.status.value,
        objective_us=us_from_seconds(iteration_s),
        bound_us=int(result.bound_s * US_PER_S),
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


def _record_of_change(
    problem: PipelineProblem,
    plan: PipelinePlan,
    verdict: Verdict,
    limits: Limits,
    like: PipelineAnswer | None,
) -> PlanRecord:
    from arachne_opt.solvers.pipeline.base import PipelineResult

    iteration_s = verdict.price.iteration_s
    if like is not None and like.record.objective_us == us_from_seconds(iteration_s):
        return dataclasses.replace(
            like.record,
            id="",
            created_at="",
            problem=problem_to_json(problem),
            plan=plan_to_json(plan),
        )
    bound_s = like.record.bound_us / US_PER_S if like else 0.0
    result = PipelineResult(
        status=Status.FEASIBLE,
        plan=plan,
        iteration_s=iteration_s,
        cautious_s=verdict.price.cautious_s,
        bound_s=min(bound_s, iteration_s),
        solver=CHANGED_PLAN,
        seed=limits.seed,
        wall_s=like.record.wall_s if like else 0.0,
        versions=dict(like.record.versions) if like else {},
    )
    return _record(problem, problem.fingerprint(), limits, result, plan, iteration_s)
