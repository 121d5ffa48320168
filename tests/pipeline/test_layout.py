"""Ranks of a plan: who is where, holds which rows and works on which samples."""

import random

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.facts import replica_pairs
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage
from tests.executor.pipeline.random_plans import plan_of, random_plan, stage


def test_ranks_follow_the_plan_where_nodes_are_open():
    plan = plan_of(Pipeline(microbatch=2, microbatches=3, stages=(stage(0, 2, 2), stage(2, 5, 1))))
    layout = Layout(plan)
    assert [m.label for m in layout.members] == [
        "pipeline 0, stage 0, replica 0, member 0",
        "pipeline 0, stage 0, replica 0, member 1",
        "pipeline 0, stage 1, replica 0, member 0",
    ]
    assert layout.tp_group(1) == (0, 1)
    assert layout.members[2].rows == (2, 3, 4)


def test_ranks_of_a_node_are_neighbours():
    def on(node: int, first: int, end: int) -> Stage:
        kind = ReplicaKind("A100-40", 1)
        return Stage(first=first, end=end, replicas=(Replica(kind, node), Replica(kind, 1 - node)))

    plan = plan_of(Pipeline(microbatch=2, microbatches=1, stages=(on(1, 0, 2), on(0, 2, 4))))
    layout = Layout(plan)
    assert [(kind, node, list(ranks)) for kind, node, ranks in layout.nodes()] == [
        ("A100-40", 1, [0, 1]),
        ("A100-40", 0, [2, 3]),
    ]
    assert [(m.stage, m.replica) for m in layout.members] == [(0, 0), (1, 1), (0, 1), (1, 0)]


def test_expert_groups_join_equal_members():
    plan = plan_of(Pipeline(microbatch=1, microbatches=1, stages=(stage(0, 3, 2, 2, 2, 2, ep=2),)))
    layout = Layout(plan)
    assert layout.ep_group(0) == (0, 2)
    assert layout.ep_group(7) == (5, 7)
    assert [m.ep_index for m in layout.members] == [0, 0, 1, 1, 0, 0, 1, 1]


def test_every_sample_of_an_iteration_goes_once_through_every_stage():
    rng = random.Random(3)
    for _ in range(200):
        layout = Layout(random_plan(rng, devices=16, uneven=True))
        for p, pipeline in enumerate(layout.plan.pipelines):
            for i in range(len(pipeline.stages)):
                mine = [m for m in layout.members if (m.pipeline, m.stage) == (p, i)]
                seen = sorted(
                    s
                    for m in mine
                    if m.tp_index == 0
                    for k in range(layout.plan.counts[p])
                    for s in layout.iteration_samples(m.rank, k)
                )
                first = layout.first_sample(p, 0)
                assert seen == list(range(first, first + pipeline.batch * layout.plan.counts[p]))


def test_shares_meet_along_the_links_that_the_planner_prices():
    for n, m in ((1, 3), (2, 4), (6, 2), (3, 3)):
        batch = 12
        links = {(s % n, s % m) for s in range(batch)}
        assert links == set(replica_pairs(n, m))


def test_segments_end_where_any_pipeline_cuts():
    one = Pipeline(microbatch=1, microbatches=1, stages=(stage(0, 2, 1), stage(2, 6, 1)))
    two = Pipeline(microbatch=1, microbatches=1, stages=(stage(0, 4, 1), stage(4, 6, 1)))
    layout = Layout(plan_of(one, two))
    assert layout.segments() == (range(2), range(2, 4), range(4, 6))
    assert layout.holders(3) == ((1,), (2,))


def test_chunks_of_interleaved_stages_are_dealt_in_turn():
    pipeline = Pipeline(microbatch=1, microbatches=2, stages=(stage(0, 4, 1), stage(4, 8, 1)))
    layout = Layout(plan_of(pipeline), chunks=2)
    assert layout.members[0].chunks == (range(2), range(4, 6))
    assert layout.members[1].chunks == (range(2, 4), range(6, 8))


@pytest.mark.parametrize(
    ("stages", "text"),
    [
        ((stage(0, 2, 1), stage(3, 5, 1)), "row 2 should come next"),
        ((stage(0, 2, 1), stage(2, 5, 1, 1, 1)), "2 samples of a micro-batch for 3 replicas"),
        ((stage(0, 5, 1, 2, ep=2),), "whole expert groups of 2"),
    ],
)
def test_plans_that_cannot_run_are_refused(stages, text):
    plan = PipelinePlan(
        model="test",
        global_batch=2,
        pipelines=(Pipeline(microbatch=2, microbatches=1, stages=stages),),
    )
    with pytest.raises(InputError, match=text):
        Layout(plan)
