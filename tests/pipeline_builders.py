"""Small pipeline problems and plans for tests: seeded, quick, without any file."""

import random
from dataclasses import replace
from itertools import pairwise

from arachne_opt.pipeline.memory import MemoryRule
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.pipeline.rows import Experts, RowModel, RowSizes
from arachne_opt.pipeline.tables import Curve, NodeLink, Port, PriceTables, Route, StepTimes

SMALL_RULE = MemoryRule(
    name="small",
    resident_bytes=16,
    optimizer_bytes=8,
    activation_bytes=4,
    runtime_bytes=2_000_000_000,
    runtime_tp_bytes=3_000_000_000,
)


def small_problem(
    pool: str = "A100-40=4,V100-16=4",
    *,
    rows: int = 6,
    batch: int = 16,
    seed: int = 0,
    experts: int = 0,
    imbalance: float = 1.25,
    options: PipelineOptions | None = None,
    flat: bool = False,
    free_links: bool = False,
    gpus_per_node: int | str = 4,
) -> PipelineProblem:
    """A problem with random tables, whose inner rows may have ``experts`` routed experts each.

    With ``flat`` all rows take 1 s forward and 2 s backward on every type; with ``free_links``
    sends and exchanges cost next to nothing.
    """
    rng = random.Random(seed)
    cluster = parse_pool(pool, gpus_per_node)
    kinds = tuple(cluster.device_types)
    inner = [0 < r < rows - 1 for r in range(rows)]

    def drawn(low: float, high: float) -> tuple[float, ...]:
        return tuple(rng.uniform(low, high) for _ in range(rows))

    steps = []
    for kind in kinds:
        for tp in (1, 2, 4):
            for m in (1, 2, 3, 4, 6, 8):
                forward = (1.0,) * rows if flat else drawn(0.01 * m / tp, 0.05 * m / tp)
                backward = (2.0,) * rows if flat else drawn(0.02 * m / tp, 0.1 * m / tp)
                share = [
                    0.5 * x if is_block else 0.0 for x, is_block in zip(forward, inner, strict=True)
                ]
                steps.append(
                    StepTimes(
                        device_type=kind,
                        tp=tp,
                        microbatch=m,
                        forward_s=forward,
                        backward_s=backward,
                        update_s=(0.0,) * rows if flat else drawn(0.001, 0.01),
                        expert_forward_s=tuple(share) if experts else (),
                        expert_backward_s=tuple(2 * x for x in share) if experts else (),
                        expert_update_s=drawn(0.001, 0.01) if experts else (),
                    )
                )
    places = sorted({(n.device_type.name, n.zone) for n in cluster.nodes})
    routes = [
        Route(
            source=Port(a, za, wa),
            target=Port(b, zb, wb),
            curve=Curve(constant=1e9 if free_links else rng.uniform(1, 3) * (wa + wb) / 2),
        )
        for a, za in places
        for b, zb in places
        for wa in (1, 2)
        for wb in (1, 2)
    ]
    parameters = [rng.randrange(1_000_000, 50_000_000) for _ in range(rows)]
    kept = [rng.randrange(1_000_000, 20_000_000) for _ in range(rows)]
    of_experts = [experts * 20_000_000 if is_block else 0 for is_block in inner]
    model = RowModel(
        name=f"small-{seed}",
        sequence_length=128,
        dtype_bytes=4,
        parameter_bytes=tuple(4 * n for n in parameters),
        output_bytes=tuple(rng.randrange(1, 9) * 1_000_000 for _ in range(rows)),
        sizes=tuple(
            RowSizes(
                tp=tp,
                parameters=tuple(n // tp for n in parameters),
                kept=tuple(n // tp for n in kept),
                expert_parameters=tuple(n // tp for n in of_experts) if experts else (),
            )
            for tp in (1, 2, 4)
        ),
        experts=Experts(
            count=experts,
            top_k=min(2, experts),
            imbalance=imbalance,
            parameter_bytes=tuple(4 * n for n in of_experts),
            exchange_bytes=tuple(3_000_000 if is_block else 0 for is_block in inner),
        )
        if experts
        else None,
    )
    return PipelineProblem(
        name=f"small {seed}",
        cluster=cluster,
        model=model,
        global_batch=batch,
        tables=PriceTables(
            steps=tuple(steps),
            routes=tuple(routes),
            node_links=tuple(
                NodeLink(device_type=k, width=w, curve=Curve(constant=50.0))
                for k in kinds
                for w in (2, 4)
            ),
        ),
        memory=SMALL_RULE,
        options=options or PipelineOptions(allow_excess=True),
        cost_version="test",
    )


def plan_of(problem: PipelineProblem, *pipelines: Pipeline, zero1: bool = False) -> PipelinePlan:
    """A plan for the model and global batch of a problem."""
    return PipelinePlan(
        model=problem.model.name,
        global_batch=problem.global_batch,
        pipelines=pipelines,
        zero1=zero1,
    )


def stage(first: int, end: int, *kinds: ReplicaKind | str, recompute: bool = False) -> Stage:
    """A stage on replicas of these kinds; a text stands for one device of that type."""
    replicas = tuple(Replica(ReplicaKind(k) if isinstance(k, str) else k) for k in kinds)
    return Stage(first=first, end=end, replicas=replicas, recompute=recompute)


def even_pipeline(
    problem: PipelineProblem,
    stages: int,
    *kinds: ReplicaKind | str,
    microbatch: int = 1,
    count: int | None = None,
) -> Pipeline:
    """Equal numbers of rows per stage, each on the same kinds."""
    rows = problem.model.row_count
    cuts = [rows * i // stages for i in range(stages + 1)]
    parts = tuple(stage(a, b, *kinds) for a, b in pairwise(cuts))
    return Pipeline(microbatch=microbatch, stages=parts, microbatches=count)


def random_plan(problem: PipelineProblem, seed: int) -> PipelinePlan:
    """Up to three pipelines of up to four mixed stages; whole and profiled micro-batches.

    Rows, micro-batches and links are right; devices and memory may not suffice.
    """
    rng = random.Random(seed)
    tables = problem.tables
    widths = {(s.device_type, s.tp) for s in tables.steps}
    zone = problem.cluster.nodes[0].zone
    pipelines = []
    while len(pipelines) < rng.randint(1, 3):
        count = rng.randint(1, min(4, problem.model.row_count))
        cuts = [0, *sorted(rng.sample(range(1, problem.model.row_count), count - 1))]
        cuts.append(problem.model.row_count)
        batch = rng.choice((1, 2, 4, 8))
        stages = []
        for a, b in pairwise(cuts):
            n = rng.choice([d for d in range(1, batch + 1) if batch % d == 0])
            fit = [(k, tp) for k, tp in sorted(widths) if (k, tp, batch // n) in tables.step_by_key]
            if not fit:
                break
            chosen = rng.sample(fit, min(len(fit), rng.choice((1, 1, 2))))
            kinds = sorted(rng.choice(chosen) for _ in range(n))
            replicas = tuple(Replica(ReplicaKind(k, tp, zone=zone)) for k, tp in kinds)
            stages.append(Stage(first=a, end=b, replicas=replicas))
        if len(stages) == count:
            micro, rest = divmod(batch, len(stages[0].replicas))
            assert rest == 0
            pipelines.append(Pipeline(microbatch=micro, stages=tuple(stages)))
    return plan_of(problem, *pipelines)


def with_counts(plan: PipelinePlan, *counts: int) -> PipelinePlan:
    """The plan with these numbers of micro-batches."""
    pipelines = tuple(
        replace(p, microbatches=n) for p, n in zip(plan.pipelines, counts, strict=True)
    )
    return replace(plan, pipelines=pipelines)
