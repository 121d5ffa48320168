"""Random legal pipeline plans, seeded: uneven layers, mixed degrees, unequal replicas."""

import random

from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage

TYPES = ("A100-40", "V100-16")


def random_plan(
    rng: random.Random,
    *,
    rows: int = 6,
    devices: int = 8,
    degrees: tuple[int, ...] = (1, 2),
    expert_degrees: tuple[int, ...] = (1,),
    uneven: bool = False,
    types: tuple[str, ...] = TYPES,
) -> PipelinePlan:
    """A plan of one to three pipelines on at most so many devices, all rows in each of them.

    With ``uneven`` micro-batches need not divide among the replicas of a stage.
    """
    pipelines: list[Pipeline] = []
    left = devices
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        if left < 1:
            break
        pipeline, used = _pipeline(rng, rows, left, degrees, expert_degrees, uneven, types)
        pipelines.append(pipeline)
        left -= used
    samples = sum(p.batch * (p.microbatches or 1) for p in pipelines)
    return PipelinePlan(
        model="test", global_batch=samples, pipelines=tuple(pipelines), zero1=rng.random() < 0.5
    )


def stage(
    first: int, end: int, *tps: int, ep: int = 1, recompute: bool = False, kind: str = TYPES[0]
) -> Stage:
    """A stage with a replica of each given tensor-parallel degree."""
    replicas = tuple(Replica(ReplicaKind(kind, tp, ep, ep > 1)) for tp in tps)
    return Stage(first=first, end=end, replicas=replicas, recompute=recompute)


def plan_of(*pipelines: Pipeline, zero1: bool = False) -> PipelinePlan:
    """A plan that trains just what its pipelines do."""
    samples = sum(p.batch * (p.microbatches or 1) for p in pipelines)
    return PipelinePlan(model="test", global_batch=samples, pipelines=pipelines, zero1=zero1)


def _pipeline(
    rng: random.Random,
    rows: int,
    left: int,
    degrees: tuple[int, ...],
    expert_degrees: tuple[int, ...],
    uneven: bool,
    types: tuple[str, ...],
) -> tuple[Pipeline, int]:
    count = rng.randint(1, min(3, rows, left))
    cuts = [0, *sorted(rng.sample(range(1, rows), count - 1)), rows]
    stages, used = [], 0
    for i in range(count):
        replicas = _replicas(rng, left - used - (count - 1 - i), degrees, expert_degrees, types)
        used += sum(r.kind.tp for r in replicas)
        stages.append(
            Stage(first=cuts[i], end=cuts[i + 1], replicas=replicas, recompute=rng.random() < 0.25)
        )
    most = max(len(s.replicas) for s in stages)
    first = len(stages[0].replicas)
    sizes = [m for m in range(1, 13) if m * first >= most and (uneven or _divides(m, stages))]
    pipeline = Pipeline(
        microbatch=rng.choice(sizes[:2]), stages=tuple(stages), microbatches=rng.randint(1, 4)
    )
    return pipeline, used


def _divides(microbatch: int, stages: list[Stage]) -> bool:
    batch = microbatch * len(stages[0].replicas)
    return all(batch % len(s.replicas) == 0 for s in stages)


def _replicas(
    rng: random.Random,
    most: int,
    degrees: tuple[int, ...],
    expert_degrees: tuple[int, ...],
    types: tuple[str, ...],
) -> tuple[Replica, ...]:
    """Whole expert groups of equal kind; groups may differ in type and tensor-parallel degree."""
    fitting = [ep for ep in expert_degrees if ep <= most]
    ep = rng.choice(fitting)
    replicas: list[Replica] = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        tps = [tp for tp in degrees if tp * ep <= most]
        if not tps:
            break
        tp = rng.choice(tps)
        kind = ReplicaKind(rng.choice(types), tp, ep, ep > 1)
        replicas += [Replica(kind)] * ep
        most -= tp * ep
    return tuple(replicas)
