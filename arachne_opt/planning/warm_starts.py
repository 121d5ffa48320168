"""Plans to begin a search with: from a named plan, or from the nearest problem that is stored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from arachne_opt.cascade.plan import CascadePlan, plan_from_json
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.errors import InputError
from arachne_opt.nearness import cascade_features, pipeline_features
from arachne_opt.records import PlanRecord

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.pipeline.plan import PipelinePlan
    from arachne_opt.pipeline.problem import PipelineProblem

Plan = TypeVar("Plan")

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Generic[Plan]):
    """A legal plan for the problem that is asked.

    Args:
        source: id of the stored plan that it was made from.
    """

    plan: Plan
    source: str


def cascade_start(
    store: PlanStore, problem: CascadeProblem, plan_id: str | None = None
) -> Start[CascadePlan] | None:
    """A plan to begin with, from a named stored plan or else from the nearest ones.

    Raises:
        InputError: the named plan cannot be used.
    """
    if plan_id is not None:
        record = _named(store, plan_id, "cascade")
        return _or_refuse(_cascade(problem, record), record)
    near = store.near_plans(cascade_features(problem), exclude=problem.fingerprint())
    tried = [_tried(lambda r=record: _cascade(problem, r), record) for _, record in near]  # type: ignore[misc]  # a default binds the loop's value
    starts = [start for start in tried if start is not None]
    return min(starts, key=lambda s: s.plan.makespan_us, default=None)


def pipeline_start(
    store: PlanStore, problem: PipelineProblem, plan_id: str | None = None
) -> Start[PipelinePlan] | None:
    """A plan to begin with, from a named stored plan or else from the nearest ones.

    Raises:
        InputError: the named plan cannot be used.
    """
    if plan_id is not None:
        record = _named(store, plan_id, "pipeline")
        return _or_refuse(_pipeline(problem, record), record)
    near = store.near_plans(pipeline_features(problem), exclude=problem.fingerprint())
    for _, record in near:
        start = _tried(lambda r=record: _pipeline(problem, r), record)  # type: ignore[misc]  # as above
        if start is not None:
            return start
    return None


def _cascade(problem: CascadeProblem, record: PlanRecord) -> Start[CascadePlan] | None:
    # Late: only a search needs it.
    from arachne_opt.solvers.cascade.warm_start import Planned, warm_start

    old = problem_from_json(record.problem)
    plan = warm_start(problem, Planned(old, plan_from_json(record.plan, old)))
    return None if plan is None else Start(plan=plan, source=record.id)


def _pipeline(problem: PipelineProblem, record: PlanRecord) -> Start[PipelinePlan] | None:
    from arachne_opt.pipeline.plan_json import plan_from_json as pipeline_plan_from_json
    from arachne_opt.solvers.pipeline.warm_start import warm_start

    plan = warm_start(problem, pipeline_plan_from_json(record.plan))
    return None if plan is None else Start(plan=plan, source=record.id)


def _tried(make: Callable[[], Start[Plan] | None], record: PlanRecord) -> Start[Plan] | None:
    try:
        return make()
    except InputError as error:
        LOG.warning("plan %s cannot be read: %s", record.id, error)
        return None


def _named(store: PlanStore, plan_id: str, kind: str) -> PlanRecord:
    record = store.get_plan(plan_id)
    if record.kind != kind:
        raise InputError(f"plan {record.id} is a {record.kind} plan, not a {kind} plan")
    return record


def _or_refuse(start: Start[Plan] | None, record: PlanRecord) -> Start[Plan]:
    if start is None:
        what = f"nothing of plan {record.id} ({record.name}) can be used for this problem"
        raise InputError(what, hint="no --warm-start: the nearest plans are tried")
    return start
