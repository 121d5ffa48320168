"""Differences between plans and between clusters, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.pipeline.plan import Pipeline
from arachne_opt.report.cascade_diff import cascade_changes, ranges
from arachne_opt.report.cluster_diff import cluster_changes
from arachne_opt.report.pipeline_diff import pipeline_changes
from tests.pipeline_builders import even_pipeline, plan_of, small_problem, stage
from tests.strategies import even_cluster, random_problem, seeded_plan, two_stage

A100 = "A100-40"
S = 10**6


def problem(*names: str, nodes: int = 2) -> CascadeProblem:
    cascades = tuple(two_stage(name, {1: S}, {1: 8 * S, 2: 5 * S}) for name in names)
    return CascadeProblem(name="p", cluster=even_cluster(nodes, 4), cascades=cascades)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_does_not_differ_from_itself(seed: int) -> None:
    given = random_problem(seed)
    plan = seeded_plan(given, seed)
    assert cascade_changes(given, plan, given, plan) == []


def test_other_degrees_devices_and_starts_are_told() -> None:
    given = problem("a")
    plan = seeded_plan(given, 1)
    first, second = plan.placements
    before = replace(plan, placements=(replace(first, devices=(0,)), replace(second, devices=(0,))))
    wider = replace(second, devices=(2, 3), start_us=2 * S, end_us=7 * S)
    after = replace(before, placements=(before.placements[0], wider))
    lines = cascade_changes(given, before, given, after)
    assert lines[0] == "denoise of a: degree 1 → 2, devices 0 → 2-3, starts 1.000 s later"
    assert lines[-1] == "1 of 2 tasks keep their devices, 1 change their degree"


def test_cascades_that_came_or_went_and_lost_nodes_are_told() -> None:
    old, new = problem("a", "b", "c"), problem("a", "x", nodes=1)
    # Equal shapes stand for each other, whatever their names.
    new = replace(new, cascades=(new.cascades[0], two_stage("x", {1: 3 * S}, {1: 9 * S})))
    lines = cascade_changes(old, seeded_plan(old), new, seeded_plan(new))
    assert any(line.startswith("the cluster loses 1 node of 4 x ") for line in lines)
    assert "cascades b, c are gone" in lines
    assert "cascade x is new" in lines


def test_layers_that_move_between_stages_are_told() -> None:
    given = small_problem()
    three = [stage(0, 2, A100), stage(2, 4, A100), stage(4, 6, A100)]
    moved = [stage(0, 3, A100), stage(3, 4, A100), stage(4, 6, A100)]
    plans = [plan_of(given, Pipeline(microbatch=1, stages=tuple(s))) for s in (three, moved)]
    assert pipeline_changes(*plans) == ["pipeline 0: stage 1 loses 1 layer to stage 0"]
    assert pipeline_changes(*plans[::-1]) == ["pipeline 0: stage 0 loses 1 layer to stage 1"]
    assert pipeline_changes(plans[0], plans[0]) == []


def test_other_replicas_batches_stages_and_pipelines_are_told() -> None:
    given = small_problem()
    one = even_pipeline(given, 2, A100, A100, microbatch=2, count=4)
    two = even_pipeline(given, 3, "V100-16", count=5)
    before = plan_of(given, one, two)
    stages = (stage(0, 3, A100, A100), stage(3, 6, A100, "V100-16", recompute=True))
    changed = Pipeline(microbatch=4, stages=stages, microbatches=2)
    after = replace(plan_of(given, changed, zero1=True), global_batch=32)
    lines = pipeline_changes(before, after)
    assert lines == [
        "global batch 16 → 32",
        "optimizer state is now shared over replicas",
        "pipeline 0: micro-batch 2 → 4",
        "pipeline 0: 4 → 2 micro-batches",
        "pipeline 0: stage 1: 2 x A100-40 tp1 → 1 x A100-40 tp1, 1 x V100-16 tp1",
        "pipeline 0: stage 1 now rebuilds activations",
        "pipeline 1 is gone (rows 0-1 on 1 x V100-16 tp1; rows 2-3 on 1 x V100-16 tp1; "
        "rows 4-5 on 1 x V100-16 tp1)",
    ]
    split = plan_of(given, even_pipeline(given, 3, A100, A100, microbatch=2, count=4), two)
    assert "pipeline 0: 2 → 3 stages" in pipeline_changes(before, split)


def test_clusters_that_differ_in_names_only_do_not_differ() -> None:
    a = parse_shorthand("H100-80:8x3, A100-80:8x1")
    nodes = tuple(replace(n, name=f"x{i}") for i, n in enumerate(reversed(a.nodes)))
    assert cluster_changes(a, replace(a, name="b", nodes=nodes)) == []


def test_nodes_links_and_penalties_that_changed_are_told() -> None:
    a, b = parse_shorthand("H100-80:8x4"), parse_shorthand("H100-80:8x2, A100-80:8x1")
    slow = replace(b.inter_link, latency_us=77)
    changed = replace(b, inter_link=slow, penalty=replace(b.penalty, scale=0.5))
    lines = cluster_changes(a, changed)
    assert lines[0].startswith("loses 2 nodes of 8 x H100-80 (80.0 GiB")
    assert lines[1].startswith("gains 1 node of 8 x A100-80")
    assert "77 us" in lines[2]
    assert "scale 0.5" in lines[3]
    assert len(lines) == 4


def test_numbers_are_put_together() -> None:
    assert ranges((8, 0, 1, 2, 3, 5)) == "0-3, 5, 8"
