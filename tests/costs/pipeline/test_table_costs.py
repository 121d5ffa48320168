"""Fast prices equal those that are derived row by row."""

import random

import numpy as np
import pytest

from arachne_opt.costs.pipeline.closed_form import plan_price
from arachne_opt.costs.pipeline.tables import TableCosts, ring_s, send_s
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.facts import ring_s as slow_ring_s
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.pipeline.tables import Curve
from tests.pipeline_builders import even_pipeline, plan_of, random_plan, small_problem, stage

A, V = ReplicaKind("A100-40"), ReplicaKind("V100-16")
ANYTHING = PipelineOptions(allow_excess=True, recomputation=True, zero1=True)


@pytest.mark.parametrize("seed", range(80))
def test_both_closed_forms_give_one_price(seed):
    problem = small_problem(seed=seed % 5, rows=4 + seed % 5, batch=8 + seed)
    plan = random_plan(problem, seed)
    slow, fast = price_plan(problem, plan), plan_price(TableCosts(problem), plan)
    assert fast.iteration_s == pytest.approx(slow.iteration_s, rel=1e-12)
    assert fast.cautious_s == pytest.approx(slow.cautious_s, rel=1e-12)
    for a, b in zip(fast.pipelines, slow.pipelines, strict=True):
        assert a.compute_s == pytest.approx(b.compute_s, rel=1e-12)
        assert a.p2p_s == pytest.approx(b.p2p_s, rel=1e-12)
        assert a.update_s == pytest.approx(b.update_s, rel=1e-12)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("ep", [2, 4])
def test_both_closed_forms_agree_on_experts(ep, local):
    problem = small_problem("A100-40=8", experts=4)
    kind = A._replace(ep=ep, ep_local=local)
    pipelines = [even_pipeline(problem, 2, *[kind] * 4, count=2) for _ in range(2)]
    plan = plan_of(problem, *pipelines)
    slow, fast = price_plan(problem, plan), plan_price(TableCosts(problem), plan)
    assert fast.iteration_s == pytest.approx(slow.iteration_s, rel=1e-12)
    assert fast.cautious_s == pytest.approx(slow.cautious_s, rel=1e-12)


def test_both_closed_forms_agree_across_zones_and_with_recomputation():
    problem = small_problem("east/A100-40=4,west/A100-40=4", options=ANYTHING)
    parts = [
        even_pipeline(problem, 2, A._replace(zone=zone), microbatch=2) for zone in ("east", "west")
    ]
    plan = plan_of(problem, *parts)
    slow, fast = price_plan(problem, plan), plan_price(TableCosts(problem), plan)
    assert fast.iteration_s == pytest.approx(slow.iteration_s, rel=1e-12)
    own = stage(0, 6, A._replace(zone="east"), recompute=True)
    rebuilt = plan_of(problem, parts[0].__class__(microbatch=1, stages=(own,)))
    slow, fast = price_plan(problem, rebuilt), plan_price(TableCosts(problem), rebuilt)
    assert fast.iteration_s == pytest.approx(slow.iteration_s, rel=1e-12)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("experts", [0, 4])
def test_memory_equals_the_rule_row_by_row(experts, recompute):
    problem = small_problem("A100-40=8", experts=experts, options=ANYTHING)
    costs, facts = TableCosts(problem), Facts(problem)
    rng = random.Random(1)
    for kind in costs.kinds:
        for _ in range(10):
            a, b = sorted(rng.sample(range(7), 2))
            m, flight, n = rng.choice((1, 2, 4)), rng.randint(1, 5), rng.randint(1, 4)
            own = stage(a, b, *[kind] * n, recompute=recompute)
            for zero1 in (False, True):
                fast = costs.memory_bytes(
                    kind, m, a, b, flight, shards=n if zero1 else 1, recompute=recompute
                )
                slow = facts.memory_bytes(own, kind, m, flight, zero1=zero1)
                assert fast == pytest.approx(slow, rel=1e-12)


@pytest.mark.parametrize("recompute", [False, True])
def test_the_furthest_end_is_the_last_that_fits(recompute):
    problem = small_problem("V100-16=8", rows=12, seed=3, options=ANYTHING)
    costs = TableCosts(problem)
    has = problem.cluster.device_types["V100-16"].memory_bytes
    for m, flight in ((1, 1), (8, 4), (8, 30), (8, 200)):
        ends = costs.furthest_end(V, m, flight, recompute=recompute)
        assert len(ends) == 12
        for first, end in enumerate(ends):
            fits = [
                e
                for e in range(first + 1, 13)
                if costs.memory_bytes(V, m, first, e, flight, recompute=recompute) <= has
            ]
            assert end == max(fits, default=first)


def test_only_kinds_that_nodes_can_hold_are_offered():
    problem = small_problem("A100-40=2+1,V100-16=4", experts=4)
    kinds = TableCosts(problem).kinds
    assert {k.tp for k in kinds if k.device_type == "A100-40"} == {1, 2}
    assert {k.tp for k in kinds if k.device_type == "V100-16"} == {1, 2, 4}
    assert A._replace(ep=2, ep_local=True) in kinds
    assert A._replace(ep=4, ep_local=True) not in kinds
    assert A._replace(ep=2) in kinds
    assert A._replace(ep=4) not in kinds  # three devices
    dense = TableCosts(small_problem("A100-40=4", options=PipelineOptions(max_tp=2))).kinds
    assert [k.tp for k in dense] == [1, 2]


def test_only_wanted_microbatches_are_offered():
    problem = small_problem(options=PipelineOptions(microbatches=(2, 3, 5)))
    assert TableCosts(problem).microbatches(A) == (2, 3)


def test_arrays_cannot_be_changed_by_mistake():
    costs = TableCosts(small_problem())
    arrays = [
        costs.work_prefix_s(A, 1),
        costs.update_s(A, 1),
        *costs.cut_s([A], [V], 4),
        costs.furthest_end(A, 1, 2),
        costs.stage_sync_s([A, V]),
    ]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_cut_sends_the_row_before_forward_and_the_gradient_of_the_row_after_back():
    problem = small_problem()
    costs, facts = TableCosts(problem), Facts(problem)
    forward, backward = costs.cut_s([A, A], [V], 8)
    a, b = stage(0, 3, A, A), stage(3, 6, V)
    assert forward[3] == pytest.approx(facts.boundary_s(a, b, 2, 8))
    assert backward[3] == pytest.approx(facts.boundary_s(b, a, 3, 8))


def test_curves_without_bandwidth_or_without_measurement_cost_infinity():
    sizes = np.array([0.0, 1e6, 1e12])
    falling = Curve(constant=1.0, slope=0.0, square=-0.01)
    assert send_s(sizes, falling).tolist() == [0.0, 1e-3, np.inf]
    assert send_s(sizes, None).tolist() == [0.0, np.inf, np.inf]
    assert falling.seconds(1e12) == np.inf


@pytest.mark.parametrize("members", [1, 2, 7])
def test_rings_go_bucket_by_bucket(members):
    curve = Curve(constant=2.0, slope=0.3, square=-0.004, latency_s=1e-5)
    sizes = np.array([0.0, 3e8, 5e8, 2.3e9])
    fast = ring_s(sizes, members, curve)
    assert fast.tolist() == pytest.approx([slow_ring_s(x, members, curve) for x in sizes])
    if members > 1:
        by_hand = (
            2 * (members - 1) * (4 * curve.seconds(5e8 / members) + curve.seconds(3e8 / members))
        )
        assert fast[3] == pytest.approx(by_hand)
    assert np.isinf(ring_s(sizes, 2, None)).tolist() == [False, True, True, True]
