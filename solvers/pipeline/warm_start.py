"""A pipeline plan made from that of a near problem: fewer or more nodes, another global batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Stage
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.solvers.pipeline.start import without_nodes

# A place of devices: (device type, zone).
_Place = tuple[str, str]


def warm_start(problem: PipelineProblem, near: PipelinePlan) -> PipelinePlan | None:
    """A legal plan after that of another problem of the same model; None where none is found.

    Stages keep their layers and degrees. Where devices are missing, the stages with the most
    replicas lose some, then whole pipelines go; micro-batches are dealt anew in proportion.
    """
    plan: PipelinePlan | None = without_nodes(near)
    room = Counter[_Place]()
    for node in problem.cluster.nodes:
        room[node.device_type.name, node.zone] += node.device_count
    # Groups may not pack into nodes even where the devices suffice: then one more has to go.
    while plan is not None:
        dealt = _dealt(problem, plan)
        lacking = _lacking(plan, room)
        if not lacking and dealt is not None and _legal(problem, dealt):
            return dealt
        plan = _smaller(plan, lacking or next(iter(_used(plan))))
    return None


def _legal(problem: PipelineProblem, plan: PipelinePlan) -> bool:
    try:
        return not check_plan(problem, place(problem, plan))
    except InfeasibleError:
        return False


def _used(plan: PipelinePlan) -> Counter[_Place]:
    """Devices that a plan uses, the place with the most first."""
    used = Counter[_Place]()
    for _, _, stage in plan.stages():
        for replica in stage.replicas:
            used[replica.kind.device_type, replica.kind.zone] += replica.kind.tp
    return Counter(dict(used.most_common()))


def _lacking(plan: PipelinePlan, room: Counter[_Place]) -> _Place | None:
    """A place where a plan uses more devices than there are."""
    return next((at for at, count in _used(plan).items() if count > room[at]), None)


def _smaller(plan: PipelinePlan, at: _Place) -> PipelinePlan | None:
    """The plan with fewer devices of a place; None where nothing can go."""
    options = [
        (len(stage.replicas), p, i)
        for p, i, stage in plan.stages()
        if _without_replicas(stage, at) is not None
    ]
    pipelines = list(plan.pipelines)
    if options:
        _, p, i = max(options, key=lambda o: (o[0], -o[1], -o[2]))
        stages = list(pipelines[p].stages)
        stages[i] = _without_replicas(stages[i], at) or stages[i]
        pipelines[p] = replace(pipelines[p], stages=tuple(stages))
        return replace(plan, pipelines=tuple(pipelines))
    users = [p for p, pipeline in enumerate(pipelines) if _uses(pipeline, at)]
    if len(pipelines) < 2 or not users:
        return None
    del pipelines[users[-1]]
    return replace(plan, pipelines=tuple(pipelines))


def _without_replicas(stage: Stage, at: _Place) -> Stage | None:
    """The stage without its last expert group or replica of a place, if others remain."""
    for last in range(len(stage.replicas) - 1, -1, -1):
        kind = stage.replicas[last].kind
        if (kind.device_type, kind.zone) == at:
            left = stage.replicas[: max(0, last + 1 - kind.ep)] + stage.replicas[last + 1 :]
            return replace(stage, replicas=left) if left else None
    return None


def _uses(pipeline: Pipeline, at: _Place) -> bool:
    return any((r.kind.device_type, r.kind.zone) == at for s in pipeline.stages for r in s.replicas)


def _dealt(problem: PipelineProblem, plan: PipelinePlan) -> PipelinePlan | None:
    """The plan with micro-batches for the global batch; None where they do not come out even."""
    pipes, want = plan.pipelines, problem.global_batch
    had = sum(p.batch * n for p, n in zip(pipes, plan.counts, strict=True))
    counts = [max(1, n * want // had) for n in plan.counts]
    short = want - sum(p.batch * n for p, n in zip(pipes, counts, strict=True))
    while short > 0:
        fitting = [i for i, p in enumerate(pipes) if p.batch <= short]
        if not fitting and not problem.options.allow_excess:
            return None
        # To the pipeline that is least ahead of its old share.
        i = min(fitting or range(len(pipes)), key=lambda i: counts[i] / plan.counts[i])
        counts[i] += 1
        short -= pipes[i].batch
    if short < 0 and not problem.options.allow_excess:
        return None
    return replace(
        plan,
        model=problem.model.name,
        global_batch=want,
        pipelines=tuple(replace(p, microbatches=n) for p, n in zip(pipes, counts, strict=True)),
    )
