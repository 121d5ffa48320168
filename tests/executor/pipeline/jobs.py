"""Pipeline problems, plans and jobs for a model that trains in moments on a CPU."""

from dataclasses import replace

from arachne_opt.executor.pipeline.job import PipelineJob, TokenSource
from arachne_opt.executor.pipeline.models.configs import spec_of_architecture
from arachne_opt.pipeline.architecture import Architecture, rows_of
from arachne_opt.pipeline.memory import MemoryRule
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.pipeline.tables import Curve, NodeLink, Port, PriceTables, Route, StepTimes

TINY = Architecture(
    name="tiny-llama",
    family="llama",
    layers=4,
    hidden=32,
    heads=4,
    kv_heads=2,
    ffn=48,
    vocabulary=97,
    sequence_length=16,
    gated=True,
    biases=False,
    tied=False,
)
SPEC = spec_of_architecture(TINY)
ROWS = SPEC.row_count
RULE = MemoryRule(
    name="tiny",
    resident_bytes=16,
    optimizer_bytes=8,
    activation_bytes=4,
    runtime_bytes=0,
    runtime_tp_bytes=0,
)


def tiny_problem(
    pool: str = "CPU=4", *, per_node: int = 2, step_s: float = 0.01
) -> PipelineProblem:
    """A row takes ``step_s`` forward for each sample, twice that backward; a group shares it."""
    cluster = parse_pool(pool, per_node)
    kinds = tuple(cluster.device_types)
    steps = tuple(
        StepTimes(
            device_type=kind,
            tp=tp,
            microbatch=m,
            forward_s=(step_s * m / tp,) * ROWS,
            backward_s=(2 * step_s * m / tp,) * ROWS,
            update_s=(step_s,) * ROWS,
        )
        for kind in kinds
        for tp in (1, 2)
        for m in (1, 2, 4)
    )
    ports = [Port(kind, "default", width) for kind in kinds for width in (1, 2)]
    link = Curve(constant=1.0)
    return PipelineProblem(
        name="tiny",
        cluster=cluster,
        model=rows_of(TINY, dtype_bytes=4, degrees=(1, 2)),
        global_batch=8,
        tables=PriceTables(
            steps=steps,
            routes=tuple(Route(source=a, target=b, curve=link) for a in ports for b in ports),
            node_links=tuple(NodeLink(device_type=k, width=2, curve=link) for k in kinds),
        ),
        memory=RULE,
        options=PipelineOptions(zero1=True),
        cost_version="test",
    )


def mixed_plan(problem: PipelineProblem, first: str = "CPU", second: str = "CPU") -> PipelinePlan:
    """One replica of two devices, then two of one device each; uneven layers."""
    stages = (
        Stage(first=0, end=2, replicas=(Replica(ReplicaKind(first, 2)),)),
        Stage(first=2, end=ROWS, replicas=(Replica(ReplicaKind(second)),) * 2),
    )
    pipeline = Pipeline(microbatch=2, microbatches=4, stages=stages)
    plan = PipelinePlan(model=problem.model.name, global_batch=8, pipelines=(pipeline,), zero1=True)
    return place(problem, plan)


def uniform_plan(problem: PipelineProblem, kind: str = "CPU") -> PipelinePlan:
    """Two stages of two replicas of one device each, three rows each."""
    stages = tuple(
        Stage(first=first, end=first + 3, replicas=(Replica(ReplicaKind(kind)),) * 2)
        for first in (0, 3)
    )
    pipeline = Pipeline(microbatch=1, microbatches=4, stages=stages)
    plan = PipelinePlan(model=problem.model.name, global_batch=8, pipelines=(pipeline,), zero1=True)
    return place(problem, plan)


def tiny_job(pool: str = "CPU=4", *kinds: str, **fields: object) -> PipelineJob:
    """A training of the tiny model on made-up text."""
    problem = tiny_problem(pool)
    job = PipelineJob(
        problem=problem,
        plan=mixed_plan(problem, *kinds),
        spec=SPEC,
        source=TokenSource(length=16),
        device="cpu",
    )
    return replace(job, **fields)
