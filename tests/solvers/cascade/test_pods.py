"""Pods: dealt out, searched, traded and joined without losing a cascade."""

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pods import Pods, Way
from arachne_opt.solvers.cascade.schedule import to_plan
from tests.strategies import even_cluster, two_stage

SHAPES = ({1: 900, 2: 500}, {4: 3100, 8: 1700}), ({2: 300}, {2: 2500, 4: 1300})


def problem(nodes=12, cascades=24):
    rows = tuple(two_stage(f"c{i}", *SHAPES[i % 3 == 0]) for i in range(cascades))
    return CascadeProblem(name="wide", cluster=even_cluster(nodes, 8), cascades=rows)


def for_placed_tasks(most):
    """A clock of so many placed tasks for every search."""

    def begin(_tasks):
        placed = 0

        def spent(more):
            nonlocal placed
            placed += more
            return placed / most

        return spent

    return begin


@pytest.fixture
def pods():
    digest = Digest(problem())
    made = Pods(digest, lower_bound(digest), 0)
    made.start()
    return digest, made


def cascades_of(rows):
    return sorted(c for pod in rows for c in pod.cascades)


def test_all_nodes_and_cascades_are_dealt_out_evenly(pods):
    digest, made = pods
    assert cascades_of(made.pods) == list(range(24))
    assert sorted(n for pod in made.pods for n in pod.nodes) == list(range(12))
    area = PodSolver(digest, lower_bound(digest), 0).area
    loads = [sum(area[c] for c in pod.cascades) for pod in made.pods]
    assert max(loads) - min(loads) <= max(area)
    assert check_plan(digest.problem, to_plan(digest, made.schedule())) == ()


def test_the_slowest_pod_is_searched_before_it_trades(pods):
    _, made = pods
    way, old = made.next_attempt()
    assert way is Way.AGAIN
    (slow,) = old
    assert slow.fresh
    assert slow.makespan_us == made.makespan_us
    (searched,) = made.improved(way, old, for_placed_tasks(500))
    assert not searched.fresh
    assert searched.makespan_us <= slow.makespan_us


def test_attempts_only_ever_shorten_and_keep_every_cascade(pods):
    digest, made = pods
    begun = made.makespan_us
    for _ in range(60):
        before = made.makespan_us
        way, old = made.next_attempt()
        fresh = made.improved(way, old, for_placed_tasks(3000))
        if fresh is not None:
            assert cascades_of(fresh) == cascades_of(old)
            made.replace(old, fresh)
        assert made.makespan_us <= before
    assert made.makespan_us < begun
    plan = to_plan(digest, made.schedule())
    assert check_plan(digest.problem, plan) == ()
    assert plan.makespan_us <= made.makespan_us


def test_joined_pods_hold_the_nodes_and_cascades_of_both(pods):
    _, made = pods
    slow, other = sorted(made.pods, key=lambda pod: -pod.makespan_us)[:2]
    joined = made.improved(Way.JOIN, (slow, other), for_placed_tasks(20_000))
    assert joined is not None
    assert set(joined[0].nodes) == {*slow.nodes, *other.nodes}
    assert cascades_of(joined) == cascades_of((slow, other))
    assert joined[0].makespan_us < slow.makespan_us


def test_what_is_known_of_equal_pods_is_used_for_others():
    digest = Digest(problem())
    solver = PodSolver(digest, 1, 0)
    first = solver.quick((0, 1), (0, 1, 2, 3))
    (searched,) = solver.again(first, for_placed_tasks(20_000)(8))

    def refuse(_placed):
        raise AssertionError("an equal pod was searched again")

    # The same shapes in another order, on other nodes.
    twin = solver.better((4, 5), (7, 6, 8, 9), refuse, (), searched.makespan_us + 1)
    assert twin.makespan_us == searched.makespan_us
    assert cascades_of((twin,)) == [6, 7, 8, 9]
    devices = {d for _, group in twin.runs for d in group}
    assert devices <= set(range(32, 48))


def test_searches_in_vain_are_remembered():
    digest = Digest(problem())
    solver = PodSolver(digest, 1, 0)
    limit_us = lower_bound(digest) // 2
    row = (0, 1), (0, 1, 2, 3)
    assert not solver.in_vain(*row, limit_us)
    for _ in range(2):
        pod = solver.quick(*row)
        solver.again(pod, for_placed_tasks(1000)(8))
    assert solver.in_vain(*row, limit_us)
    assert not solver.in_vain(*row, 1 << 60)
