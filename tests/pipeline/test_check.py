"""The checker finds each planted fault, and nothing in legal plans."""

from dataclasses import replace

import pytest

from arachne_opt.pipeline.check import Fault, check_plan
from arachne_opt.pipeline.plan import Pipeline, Replica, ReplicaKind
from arachne_opt.pipeline.problem import PipelineOptions
from tests.pipeline_builders import even_pipeline, plan_of, small_problem, stage

A, V = ReplicaKind("A100-40"), ReplicaKind("V100-16")


def legal():
    problem = small_problem("A100-40=8,V100-16=8")
    return problem, plan_of(problem, even_pipeline(problem, 2, A, A, count=8))


def codes(problem, plan):
    return {v.code for v in check_plan(problem, plan)}


def test_a_legal_plan_has_no_violation():
    assert check_plan(*legal()) == ()


def test_a_legal_plan_of_experts_has_no_violation():
    problem = small_problem("A100-40=8", experts=4)
    for local in (True, False):
        kind = ReplicaKind("A100-40", 1, 4, local)
        plan = plan_of(problem, even_pipeline(problem, 2, *[kind] * 4, count=4))
        assert check_plan(problem, plan) == ()


def one_stage(problem, *kinds, **more):
    return plan_of(problem, Pipeline(microbatch=1, stages=(stage(0, 6, *kinds, **more),)))


FAULTS = {
    Fault.WRONG_MODEL: lambda p, plan: (p, replace(plan, model="other")),
    Fault.WRONG_BATCH: lambda p, plan: (p, replace(plan, global_batch=15)),
    Fault.SAMPLES: lambda p, plan: (p, plan_of(p, even_pipeline(p, 2, A, A, count=7))),
    Fault.EXCESS: lambda p, plan: (
        replace(p, options=PipelineOptions()),
        plan_of(p, even_pipeline(p, 2, A, A, count=9)),
    ),
    Fault.LAYERS: lambda p, plan: (
        p,
        plan_of(p, Pipeline(microbatch=1, stages=(stage(0, 3, A), stage(4, 6, A)))),
    ),
    Fault.UNKNOWN_TYPE: lambda p, plan: (p, one_stage(p, "H100-80")),
    Fault.UNKNOWN_ZONE: lambda p, plan: (p, one_stage(p, A._replace(zone="moon"))),
    Fault.TOO_WIDE: lambda p, plan: (p, one_stage(p, A._replace(tp=8))),
    Fault.DEVICES: lambda p, plan: (
        p,
        plan_of(p, *[even_pipeline(p, 1, A, A, A, microbatch=2) for _ in range(3)]),
    ),
    Fault.NODE: lambda p, plan: (
        p,
        plan_of(
            p,
            Pipeline(
                microbatch=1,
                stages=(replace(stage(0, 6, A), replicas=(Replica(A, 2),)),),
            ),
        ),
    ),
    Fault.PACKING: lambda p, plan: (
        small_problem("A100-40=3+3+2"),
        one_stage(p, *[A._replace(tp=2)] * 4),
    ),
    Fault.MICROBATCH: lambda p, plan: (
        p,
        plan_of(p, Pipeline(microbatch=1, stages=(stage(0, 3, A), stage(3, 6, A, A)))),
    ),
    Fault.NO_TIMES: lambda p, plan: (p, plan_of(p, even_pipeline(p, 1, A, microbatch=5))),
    Fault.NO_LINK: lambda p, plan: (
        replace(p, tables=replace(p.tables, routes=_without_mixed(p.tables.routes))),
        plan_of(p, Pipeline(microbatch=1, stages=(stage(0, 3, A), stage(3, 6, V)))),
    ),
    Fault.MEMORY: lambda p, plan: (
        replace(p, memory=replace(p.memory, resident_bytes=4000)),
        plan,
    ),
    Fault.EXPERTS: lambda p, plan: (p, one_stage(p, *[A._replace(ep=2)] * 2)),
    Fault.NOT_ALLOWED: lambda p, plan: (p, replace(plan, zero1=True)),
}


def _without_mixed(routes):
    return tuple(r for r in routes if r.source.device_type == r.target.device_type)


@pytest.mark.parametrize("fault", Fault)
def test_every_kind_of_fault_is_found(fault):
    problem, plan = FAULTS[fault](*legal())
    assert fault in codes(problem, plan)


def test_each_violation_says_where_and_what():
    problem, plan = legal()
    small = replace(problem, memory=replace(problem.memory, resident_bytes=4000))
    texts = [str(v) for v in check_plan(small, plan)]
    assert len(texts) == 2
    assert all("A100-40 tp1 needs" in t and "has 40.0 GiB" in t for t in texts)
    assert texts[0].startswith("[memory] pipeline 0, stage 0")


def test_several_faults_are_all_listed():
    problem, plan = legal()
    broken = replace(plan, model="x", global_batch=3, zero1=True)
    assert {Fault.WRONG_MODEL, Fault.WRONG_BATCH, Fault.NOT_ALLOWED} <= codes(problem, broken)


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ([A._replace(ep=4)] * 4, False),
        ([A._replace(ep=4)] * 2, True),  # no whole group
        ([A._replace(ep=3)] * 3, True),  # three do not divide four experts
        ([A._replace(ep=2)] * 2 + [A._replace(ep=4)] * 4, True),  # two degrees in a stage
        ([A._replace(ep=2), V._replace(ep=2)], True),  # a mixed group
        ([A._replace(ep=2)] * 2 + [V._replace(ep=2)] * 2, False),
    ],
)
def test_expert_groups_are_whole_equal_neighbours(kinds, found):
    problem = small_problem("A100-40=8,V100-16=8", experts=4)
    assert (Fault.EXPERTS in codes(problem, one_stage(problem, *kinds))) == found


def test_recomputation_and_sharding_save_the_memory_that_they_should():
    options = PipelineOptions(allow_excess=True, recomputation=True, zero1=True)
    problem = small_problem("A100-40=8", options=options)
    hungry = replace(problem, memory=replace(problem.memory, activation_bytes=1200))
    kept = plan_of(hungry, even_pipeline(hungry, 2, A, A, count=8))
    assert Fault.MEMORY in codes(hungry, kept)
    rebuilt = tuple(
        replace(p, stages=tuple(replace(s, recompute=True) for s in p.stages))
        for p in kept.pipelines
    )
    assert check_plan(hungry, replace(kept, pipelines=rebuilt)) == ()
    heavy = replace(problem, memory=replace(problem.memory, optimizer_bytes=450))
    plan = plan_of(heavy, even_pipeline(heavy, 1, *[A] * 8, count=2))
    assert Fault.MEMORY in codes(heavy, plan)
    assert check_plan(heavy, replace(plan, zero1=True)) == ()


def test_a_node_is_full_when_named_groups_fill_it():
    problem = small_problem("A100-40=8")
    three = tuple(Replica(A._replace(tp=2), n) for n in (0, 0, 0))
    plan = plan_of(
        problem,
        Pipeline(microbatch=1, stages=(replace(stage(0, 6, A), replicas=three),)),
    )
    assert "uses 6 devices of node 0, it has 4" in " ".join(map(str, check_plan(problem, plan)))


def test_a_plan_never_uses_devices_of_another_zone():
    problem = small_problem("east/A100-40=4,west/A100-40=4")
    east = ReplicaKind("A100-40", zone="east")
    five = plan_of(problem, even_pipeline(problem, 1, *[east] * 6))
    assert Fault.DEVICES in codes(problem, five)
    west = Replica(ReplicaKind("A100-40", zone="east"), 1)
    named = replace(stage(0, 6, east), replicas=(west,))
    plan = plan_of(problem, Pipeline(microbatch=1, stages=(named,)))
    assert Fault.NODE in codes(problem, plan)
