"""Plans made from those of near problems, and plans in milliseconds."""

import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InfeasibleError
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest, binding_limits
from arachne_opt.solvers.cascade.quick import quick_plan
from arachne_opt.solvers.cascade.warm_start import Planned, device_map, nearest, warm_start
from tests.strategies import even_cluster, random_problem, seeded_plan, two_stage

ROOT = Path(__file__).resolve().parent.parent.parent.parent
S = 10**6


def planned(problem: CascadeProblem, seed: int = 0) -> Planned:
    """A problem with a random legal plan."""
    return Planned(problem, seeded_plan(problem, seed))


def shape(name: str, seconds: int) -> Cascade:
    return two_stage(name, {1: seconds * S}, {1: 8 * seconds * S, 2: 5 * seconds * S})


def problem(*cascades: Cascade) -> CascadeProblem:
    return CascadeProblem(name="p", cluster=even_cluster(), cascades=cascades)


@pytest.mark.parametrize("seed", range(20))
def test_the_plan_of_an_equal_problem_is_not_made_worse(seed: int) -> None:
    made = planned(random_problem(seed), seed)
    plan = warm_start(made.problem, made)
    assert plan is not None
    verify(made.problem, plan, plan.makespan_us)
    assert plan.makespan_us <= made.plan.makespan_us


@pytest.mark.parametrize("seed", range(20))
def test_near_problems_give_legal_plans(seed: int) -> None:
    made = planned(random_problem(seed), seed)
    other = random_problem(seed + 100, restricted=False).cascades
    cluster = made.problem.cluster
    extra = [replace(c, id=f"x{i}") for i, c in enumerate(other) if _fits(c, cluster)]
    cascades = (*made.problem.cascades[1:], *extra) or made.problem.cascades
    changed = replace(made.problem, name="changed", cascades=tuple(cascades))
    plan = warm_start(changed, made)
    assert plan is not None
    verify(changed, plan, plan.makespan_us)


def _fits(cascade: Cascade, cluster) -> bool:
    alone = CascadeProblem(name="alone", cluster=cluster, cascades=(cascade,))
    return all(alone.usable_options(task) for task in cascade.tasks)


def test_cascades_that_both_have_keep_their_degrees() -> None:
    old = problem(shape("a", 1), shape("b", 2))
    plan = seeded_plan(old, 3)
    new = problem(shape("new", 3), shape("b", 2))
    made = warm_start(new, Planned(old, plan))
    assert made is not None
    wanted = {p.task: p.degree for p in plan.placements if p.cascade == 1}
    assert {p.task: p.degree for p in made.placements if p.cascade == 1} == wanted


def test_the_nearest_shares_most_cascades() -> None:
    a, b, c = (shape(name, n) for n, name in enumerate("abc", 1))
    near = Planned(problem(a, b), seeded_plan(problem(a, b)))
    far = Planned(problem(a, replace(a, id="x")), near.plan)
    wanted = problem(a, b, c)
    assert nearest(wanted, [near, far]) is near
    assert nearest(wanted, [far, near]) is near
    assert nearest(wanted, []) is None


@pytest.mark.parametrize("seed", range(25))
def test_lost_and_gained_nodes_give_legal_plans(seed: int) -> None:
    made = planned(random_problem(seed, restricted=False), seed)
    dice, nodes = random.Random(seed), list(made.problem.cluster.nodes)
    if len(nodes) > 1 and dice.random() < 0.5:
        del nodes[dice.randrange(len(nodes))]
    else:
        nodes.insert(0, replace(nodes[-1], name="new"))
    zones = {node.zone for node in nodes}
    links = made.problem.cluster.zone_links
    cluster = replace(
        made.problem.cluster,
        nodes=tuple(nodes),
        zone_links=tuple(z for z in links if set(z.zones) <= zones),
    )
    changed = replace(made.problem, cluster=cluster)
    plan = warm_start(changed, made)
    if binding_limits(changed):
        assert plan is None
    else:
        assert plan is not None
        verify(changed, plan, plan.makespan_us)


def test_nodes_are_known_again_by_name_then_by_kind() -> None:
    before = even_cluster(3, 2)
    without_second = replace(before, nodes=(before.nodes[2], before.nodes[0]))
    assert device_map(before, without_second) == {0: 2, 1: 3, 4: 0, 5: 1}
    renamed = replace(before, nodes=tuple(replace(n, name=f"x{n.name}") for n in before.nodes))
    assert device_map(before, renamed) == {d: d for d in range(6)}
    first = before.nodes[0]
    damaged = replace(first, nic_of_device=first.nic_of_device[:1])
    assert device_map(before, replace(before, nodes=(damaged, *before.nodes[1:]))) == {
        0: 0,
        2: 1,
        3: 2,
        4: 3,
        5: 4,
    }


def test_a_cascade_keeps_its_group_where_its_nodes_are_still_there() -> None:
    old = CascadeProblem(
        name="p", cluster=even_cluster(2, 4), cascades=(shape("a", 1), shape("b", 2))
    )
    plan = seeded_plan(old, 3)
    grown = replace(
        old.cluster, nodes=(*old.cluster.nodes, replace(old.cluster.nodes[0], name="n"))
    )
    made = warm_start(replace(old, cluster=grown), Planned(old, plan))
    assert made is not None
    assert made.makespan_us <= plan.makespan_us


@pytest.mark.parametrize("seed", range(15))
def test_quick_plans_are_legal_and_above_their_bound(seed: int) -> None:
    given = random_problem(seed)
    plan, bound_us = quick_plan(given)
    verify(given, plan, plan.makespan_us)
    assert lower_bound(Digest(usable_part(given).problem)) == bound_us <= plan.makespan_us


def test_quick_plans_are_quick() -> None:
    given = problem(*(shape(f"c{i}", 1 + i % 5) for i in range(24)))
    given = replace(given, cluster=even_cluster(4, 8))
    quick_plan(given)
    began_s = time.monotonic()
    quick_plan(given)
    assert time.monotonic() - began_s < 0.5


def test_a_problem_without_plan_says_so_at_once() -> None:
    with pytest.raises(InfeasibleError, match="no plan exists"):
        quick_plan(random_problem(1, feasible=False))


def test_neither_loads_a_solver_library() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import arachne_opt.planning.plan_ahead\n"
    code += "import arachne_opt.solvers.cascade.warm_start\n"
    code += "print(*{name.partition('.')[0] for name in sys.modules})"
    command = [sys.executable, "-c", code, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert not set(done.stdout.split()) & {"ortools", "highspy", "torch", "sqlalchemy", "pulp"}
