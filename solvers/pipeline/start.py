"""Plans from outside, such as the one of the cluster before it changed."""

from __future__ import annotations

from dataclasses import replace

from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import PipelinePlan, Replica
from arachne_opt.solvers.pipeline.workbench import Workbench


def usable(bench: Workbench, plan: PipelinePlan) -> PipelinePlan | None:
    """The plan without its nodes if it is legal for the problem, else None."""
    open_ = without_nodes(plan)
    if check_plan(bench.problem, open_):
        return None
    try:
        place(bench.problem, open_)
    except InfeasibleError:
        return None
    return open_


def without_nodes(plan: PipelinePlan) -> PipelinePlan:
    """The plan with its nodes left open."""
    pipelines = tuple(
        replace(
            p,
            stages=tuple(
                replace(s, replicas=tuple(Replica(r.kind) for r in s.replicas)) for s in p.stages
            ),
        )
        for p in plan.pipelines
    )
    return replace(plan, pipelines=pipelines)
