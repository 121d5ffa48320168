"""Packing groups into nodes, against exhaustive search."""

import itertools
import random

import pytest

from arachne_opt.errors import InfeasibleError
from arachne_opt.pipeline.check import Fault, check_plan
from arachne_opt.pipeline.packing import pack
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, ReplicaKind
from tests.pipeline_builders import plan_of, small_problem, stage


def is_packed(groups, free, node_of):
    used = [0] * len(free)
    for size, n in zip(groups, node_of, strict=True):
        used[n] += size
    return all(u <= f for u, f in zip(used, free, strict=True))


@pytest.mark.parametrize("seed", range(150))
def test_packing_agrees_with_trying_everything(seed):
    rng = random.Random(seed)
    free = [rng.choice((1, 2, 4, 8, 7, 5)) for _ in range(rng.randint(1, 3))]
    sizes = (1, 2, 4, 8) if seed % 2 else (1, 2, 3, 4, 5, 7)
    groups = [rng.choice(sizes) for _ in range(rng.randint(1, 6))]
    found = pack(groups, free)
    possible = any(
        is_packed(groups, free, nodes)
        for nodes in itertools.product(range(len(free)), repeat=len(groups))
    )
    assert (found is not None) == possible
    assert found is None or is_packed(groups, free, found)


def test_largest_first_is_not_enough_for_odd_sizes():
    # Largest first puts 4 + 3 into the first node and strands a 2.
    assert pack([4, 3, 3, 2, 2, 2], [8, 8]) is not None


def test_packing_a_thousand_devices_is_quick():
    assert pack([4] * 100 + [2] * 200 + [1] * 200, [8] * 125) is not None
    assert pack([4] * 100 + [2] * 200 + [1] * 201, [8] * 125) is None


def test_place_names_a_node_for_every_replica_and_keeps_named_ones():
    problem = small_problem("A100-40=4+2+1")
    kinds = [ReplicaKind("A100-40", tp) for tp in (4, 2, 1)]
    plan = plan_of(problem, Pipeline(microbatch=1, stages=(stage(0, 6, *kinds),)))
    placed = place(problem, plan)
    assert [r.node for r in placed.pipelines[0].stages[0].replicas] == [0, 1, 2]
    assert place(problem, placed) == placed
    assert not [v for v in check_plan(problem, placed) if v.code in (Fault.NODE, Fault.PACKING)]


def test_place_says_what_does_not_fit():
    problem = small_problem("A100-40=2+2+2")
    kind = ReplicaKind("A100-40", 4)
    plan = plan_of(problem, Pipeline(microbatch=1, stages=(stage(0, 6, kind),)))
    with pytest.raises(InfeasibleError, match="A100-40"):
        place(problem, plan)


def test_an_expert_group_inside_a_node_is_packed_as_one():
    local = ReplicaKind("A100-40", 1, 4, True)
    problem = small_problem("A100-40=2+2", experts=4)
    plan = plan_of(problem, Pipeline(microbatch=1, stages=(stage(0, 6, *[local] * 4),)))
    assert Fault.TOO_WIDE in {v.code for v in check_plan(problem, plan)}
    wide = small_problem("A100-40=4+2+2", experts=4)
    two = plan_of(
        wide, Pipeline(microbatch=1, stages=(stage(0, 3, *[local] * 4), stage(3, 6, *[local] * 4)))
    )
    assert Fault.PACKING in {v.code for v in check_plan(wide, two)}
    across = local._replace(ep_local=False)
    mixed = plan_of(
        wide, Pipeline(microbatch=1, stages=(stage(0, 3, *[local] * 4), stage(3, 6, *[across] * 4)))
    )
    assert Fault.PACKING not in {v.code for v in check_plan(wide, mixed)}
    placed = place(wide, mixed)
    assert {r.node for r in placed.pipelines[0].stages[0].replicas} == {0}
