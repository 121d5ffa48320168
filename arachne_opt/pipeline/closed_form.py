"""The closed form of an iteration, from the raw tables; no solver code takes part."""

from __future__ import annotations

from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, ReplicaKind
from arachne_opt.pipeline.price import PipelinePrice, PlanPrice
from arachne_opt.pipeline.problem import PipelineProblem


def price_plan(problem: PipelineProblem, plan: PipelinePlan) -> PlanPrice:
    """The price of a plan that passed the checker's tests for micro-batches and tables."""
    facts = Facts(problem)
    return PlanPrice(
        pipelines=tuple(
            _pipeline(facts, p, n) for p, n in zip(plan.pipelines, plan.counts, strict=True)
        ),
        sync_s=_inside_s(facts, plan, cautious=False) + _across_s(facts, plan),
        cautious_sync_s=_inside_s(facts, plan, cautious=True) + _cautious_across_s(facts, plan),
    )


def _pipeline(facts: Facts, pipeline: Pipeline, count: int) -> PipelinePrice:
    compute, p2p, update = [], [], 0.0
    stages, last = pipeline.stages, len(pipeline.stages) - 1
    for i, stage in enumerate(stages):
        samples = pipeline.batch // len(stage.replicas)
        rows = range(stage.first, stage.end)
        work = []
        for kind in stage.kinds:
            back = facts.backward_s(kind, samples, rows, recompute=stage.recompute)
            work.append(facts.forward_s(kind, samples, rows) + back)
            update = max(update, facts.update_s(kind, samples, stage.first))
        compute.append(max(work))
        ahead = back = 0.0
        if i < last:
            ahead = facts.boundary_s(stage, stages[i + 1], stage.end - 1, pipeline.batch)
        if i > 0:
            back = facts.boundary_s(stage, stages[i - 1], stage.first, pipeline.batch)
        # The published form doubles the only send of the last stage, and that of the first one
        # in pipelines of more than three stages.
        p2p.append(ahead * (2 if i == 0 and last > 2 else 1) + back * (2 if i == last else 1))
    return PipelinePrice(
        microbatches=count, compute_s=tuple(compute), p2p_s=tuple(p2p), update_s=update
    )


def _inside_s(facts: Facts, plan: PipelinePlan, *, cautious: bool) -> float:
    return max(facts.stage_sync_s(stage, cautious=cautious) for _, _, stage in plan.stages())


def _across_s(facts: Facts, plan: PipelinePlan) -> float:
    """Exchange across pipelines by the stages of the (first) longest one."""
    count = len(plan.pipelines)
    if count == 1:
        return 0.0
    places = _places(plan)
    worst = 0.0
    for stage in max(plan.pipelines, key=lambda p: len(p.stages)).stages:
        rows = range(stage.first, stage.end)
        for kind in stage.kinds:
            others = [k for k in places if k.zone != kind.zone]
            for other in (kind, *others):
                worst = max(worst, facts.cross_s(kind, other, kind.ep, rows, count))
    return worst


def _cautious_across_s(facts: Facts, plan: PipelinePlan) -> float:
    """The same for all stages of all pipelines and all types in the plan."""
    count = len(plan.pipelines)
    if count == 1:
        return 0.0
    places = _places(plan)
    return max(
        facts.cross_s(a, b, s.replicas[0].kind.ep, range(s.first, s.end), count)
        for _, _, s in plan.stages()
        for a in places
        for b in places
    )


def _places(plan: PipelinePlan) -> list[ReplicaKind]:
    """One kind for each type and zone of a plan."""
    found: dict[tuple[str, str], ReplicaKind] = {}
    for _, _, stage in plan.stages():
        for kind in stage.kinds:
            found.setdefault((kind.device_type, kind.zone), kind)
    return list(found.values())
