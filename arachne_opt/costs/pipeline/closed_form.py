"""The closed form of an iteration, after the published "fair" price of eth-easl/sailor plans.

time of a pipeline = (M - 1) · max_i (c_i + p_i) + Σ c_i + Σ p_i + update
iteration          = slowest pipeline + gradient exchange
"""

from __future__ import annotations

from itertools import pairwise, product

from arachne_opt.costs.pipeline.base import PipelineCosts
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, ReplicaKind, Stage
from arachne_opt.pipeline.price import PipelinePrice, PlanPrice


def plan_price(costs: PipelineCosts, plan: PipelinePlan) -> PlanPrice:
    """The price of a plan whose rows, micro-batches and types are in the tables."""
    pipelines = tuple(
        pipeline_price(costs, p, n) for p, n in zip(plan.pipelines, plan.counts, strict=True)
    )
    return PlanPrice(
        pipelines=pipelines,
        sync_s=_inside_s(costs, plan, cautious=False) + _across_s(costs, plan),
        cautious_sync_s=_inside_s(costs, plan, cautious=True) + _cautious_across_s(costs, plan),
    )


def pipeline_price(costs: PipelineCosts, pipeline: Pipeline, microbatches: int) -> PipelinePrice:
    """The price of one pipeline."""
    own = [(s, pipeline.batch // len(s.replicas)) for s in pipeline.stages]
    compute = tuple(
        max(costs.work_s(k, m, s.first, s.end, recompute=s.recompute) for k in s.kinds)
        for s, m in own
    )
    update = max(float(costs.update_s(k, m)[s.first]) for s, m in own for k in s.kinds)
    sends = [_cut_s(costs, a, b, pipeline.batch) for a, b in pairwise(pipeline.stages)]
    return PipelinePrice(
        microbatches=microbatches,
        compute_s=compute,
        p2p_s=stage_sends_s(sends),
        update_s=update,
    )


def stage_sends_s(cuts_s: list[tuple[float, float]]) -> tuple[float, ...]:
    """Sends of each stage from the (forward, backward) seconds of each boundary.

    Inner stages pay their forward send and their backward send, the last stage its backward send
    twice, the first its forward send, and twice where there are more than three stages.
    """
    if not cuts_s:
        return (0.0,)
    first = cuts_s[0][0] * (2 if len(cuts_s) > 2 else 1)
    inner = [ahead[0] + back[1] for back, ahead in pairwise(cuts_s)]
    return (first, *inner, 2 * cuts_s[-1][1])


def _cut_s(costs: PipelineCosts, a: Stage, b: Stage, batch: int) -> tuple[float, float]:
    forward, backward = costs.cut_s(
        [r.kind for r in a.replicas], [r.kind for r in b.replicas], batch
    )
    return float(forward[a.end]), float(backward[b.first])


def _inside_s(costs: PipelineCosts, plan: PipelinePlan, *, cautious: bool) -> float:
    """Slowest stage's exchange among its replicas."""
    worst = 0.0
    for _, _, s in plan.stages():
        table = costs.stage_sync_s([r.kind for r in s.replicas], cautious=cautious)
        worst = max(worst, float(table[s.first, s.end]))
    return worst


def _across_s(costs: PipelineCosts, plan: PipelinePlan) -> float:
    """Exchange across pipelines by the stages of the (first) longest one.

    Each type meets its like; devices of other zones are met over the links between the zones.
    """
    worst, count = 0.0, len(plan.pipelines)
    if count < 2:
        return worst
    everyone = _ports(plan)
    for stage in max(plan.pipelines, key=lambda p: len(p.stages)).stages:
        for kind in stage.kinds:
            for other in [kind, *(k for k in everyone if k.zone != kind.zone)]:
                table = costs.cross_sync_s(kind, other, count)
                worst = max(worst, float(table[stage.first, stage.end]))
    return worst


def _cautious_across_s(costs: PipelineCosts, plan: PipelinePlan) -> float:
    """Exchange across pipelines of every stage over every link between types in the plan."""
    worst, count = 0.0, len(plan.pipelines)
    if count < 2:
        return worst
    # Most pipelines are alike: every span is looked up once.
    spans = {(s.first, s.end, s.replicas[0].kind.ep) for _, _, s in plan.stages()}
    for (first, end, ep), (a, b) in product(spans, product(_ports(plan), repeat=2)):
        table = costs.cross_sync_s(a._replace(ep=ep), b, count)
        worst = max(worst, float(table[first, end]))
    return worst


def _ports(plan: PipelinePlan) -> tuple[ReplicaKind, ...]:
    """One kind for each type and zone in the plan."""
    found = {(k.device_type, k.zone): k for _, _, s in plan.stages() for k in s.kinds}
    return tuple(k._replace(ep=1) for k in found.values())
