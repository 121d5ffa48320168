"""The price of a change of plans, on plans whose moves can be counted by hand."""

from dataclasses import replace

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.cluster_change import problem_on, surviving_nodes
from arachne_opt.pipeline.holdings import holdings
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.relayout import price_relayout
from arachne_opt.pipeline.sticky import place_near
from tests.pipeline_builders import even_pipeline, plan_of, small_problem

A, V = "A100-40", "V100-16"


def placed(problem, *pipelines, zero1=False):
    return place(problem, plan_of(problem, *pipelines, zero1=zero1))


def state_bytes(problem, rows):
    """Weights and two moments of rows in fp32 on one device."""
    return sum(problem.model.sizes_by_tp[1].parameters[r] for r in rows) * (4 + 8)


def test_the_same_plan_moves_nothing():
    problem = small_problem()
    plan = placed(problem, even_pipeline(problem, 2, A, V, count=8))
    price = price_relayout(problem, holdings(plan), plan)
    assert (price.network_bytes, price.inside_bytes, price.lost_bytes, price.seconds) == (0,) * 4


def test_shards_of_the_optimizer_state_move_once():
    problem = small_problem(f"{A}=4", gpus_per_node=1)
    one = placed(problem, even_pipeline(problem, 1, A, A, count=8))
    two = placed(problem, even_pipeline(problem, 1, *[A] * 4, count=4), zero1=True)
    price = price_relayout(problem, holdings(one), two)
    weights = sum(problem.model.sizes_by_tp[1].parameters) * 4
    # Two more copies of the weights, and two of four shards of the moments.
    assert price.network_bytes == pytest.approx(2 * weights + 2 / 4 * 2 * weights)
    back = price_relayout(problem, holdings(two), one)
    assert back.network_bytes == pytest.approx(2 * 3 / 4 * 2 * weights)


def test_a_replica_on_another_node_gets_its_rows_over_the_network():
    problem = small_problem(f"{A}=2", gpus_per_node=1)
    one = placed(problem, even_pipeline(problem, 1, A, count=16))
    two = placed(problem, even_pipeline(problem, 1, A, A, count=8))
    price = price_relayout(problem, holdings(one), two)
    rows = range(problem.model.row_count)
    assert price.network_bytes == pytest.approx(state_bytes(problem, rows))
    assert price.inside_bytes == price.lost_bytes == 0
    assert price.replicas == 1
    assert price.seconds > 0


def test_a_copy_on_the_own_node_does_not_use_the_network():
    problem = small_problem(f"{A}=2", gpus_per_node=2)
    one = placed(problem, even_pipeline(problem, 1, A, count=16))
    two = placed(problem, even_pipeline(problem, 1, A, A, count=8))
    price = price_relayout(problem, holdings(one), two)
    rows = range(problem.model.row_count)
    assert price.network_bytes == 0
    assert price.inside_bytes == pytest.approx(state_bytes(problem, rows))


def test_another_tp_is_cut_anew_inside_the_node():
    problem = small_problem(f"{A}=4", gpus_per_node=4)
    wide = placed(problem, even_pipeline(problem, 1, ReplicaKind(A, 4), count=16))
    narrow = placed(problem, even_pipeline(problem, 1, ReplicaKind(A, 2), count=16))
    price = price_relayout(problem, holdings(wide), narrow)
    assert price.network_bytes == 0
    assert price.inside_bytes > 0


def test_rows_without_a_copy_come_from_a_checkpoint():
    problem = small_problem(f"{A}=2", gpus_per_node=1)
    plan = placed(problem, even_pipeline(problem, 2, A, count=16))
    first_node_only = holdings(plan, {(A, 0): (A, 0)})
    price = price_relayout(problem, first_node_only, plan)
    rows = plan.pipelines[0].stages[1]
    assert price.lost_rows == tuple(range(rows.first, rows.end))
    assert price.lost_bytes == pytest.approx(state_bytes(problem, price.lost_rows))
    assert price.network_bytes == 0


def test_receivers_pass_rows_on_so_that_no_node_sends_all_copies():
    problem = small_problem(f"{A}=8", gpus_per_node=1)
    one = placed(problem, even_pipeline(problem, 1, A, count=16))
    two = placed(problem, even_pipeline(problem, 1, *[A] * 2, count=8))
    eight = placed(problem, even_pipeline(problem, 1, *[A] * 8, count=2))
    once_s = price_relayout(problem, holdings(one), two).seconds
    assert price_relayout(problem, holdings(one), eight).seconds < 3 * once_s


def test_nodes_are_chosen_where_the_rows_are():
    problem = small_problem(f"{A}=4", gpus_per_node=1)
    plan = placed(problem, even_pipeline(problem, 4, A, count=16))
    (pipe,) = plan.pipelines
    turned = [
        replace(s, replicas=(s.replicas[0]._replace(node=3 - i),))
        for i, s in enumerate(pipe.stages)
    ]
    held = holdings(replace(plan, pipelines=(replace(pipe, stages=tuple(turned)),)))
    near, price = place_near(problem, plan, held)
    assert price.network_bytes == price.seconds == 0
    assert [s.replicas[0].node for s in near.pipelines[0].stages] == [3, 2, 1, 0]


def test_nodes_that_left_are_the_last_of_their_kind():
    old = small_problem(f"{A}=8,{V}=8")
    new = problem_on(old, parse_pool(f"{A}=4,{V}=8", 4))
    assert surviving_nodes(old, new) == {(A, 0): (A, 0), (V, 0): (V, 0), (V, 1): (V, 1)}


def test_nodes_are_known_by_name_where_names_tell():
    old = small_problem(f"{A}=12")
    nodes = old.cluster.nodes
    new = problem_on(old, replace(old.cluster, nodes=(nodes[0], nodes[2])))
    assert surviving_nodes(old, new) == {(A, 0): (A, 0), (A, 2): (A, 1)}


def test_a_problem_on_a_part_of_its_types_keeps_only_their_tables():
    old = small_problem(f"{A}=4,{V}=4")
    new = problem_on(old, parse_pool(f"{V}=8", 4))
    assert new.tables.device_types == (V,)
    assert new.global_batch == old.global_batch


def test_a_type_without_tables_is_refused_with_those_that_have_some():
    old = small_problem(f"{A}=4,{V}=4")
    with pytest.raises(InputError, match=r"no profile for type H100-80.*A100-40, V100-16"):
        problem_on(old, parse_pool("H100-80=8", 4))
