"""Pods: dealt out, searched and traded without losing a cascade."""

import random
from dataclasses import replace

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers import pod_search
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_deal import deal
from arachne_opt.solvers.cascade.pod_solver import PodSolver, Wanted
from arachne_opt.solvers.cascade.pod_walk import PodWalk
from arachne_opt.solvers.cascade.pods import Pods
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.cascade.walks.walker import MOST_BESIDE
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.solvers.search import Parts, Search
from arachne_opt.solvers.seeding import Seeding
from tests.seed_builders import random_cascade_policy
from tests.strategies import even_cluster, two_stage

SHAPES = ({1: 900, 2: 500}, {4: 3100, 8: 1700}), ({2: 300}, {2: 2500, 4: 1300})


def problem(nodes=12, cascades=24):
    rows = tuple(two_stage(f"c{i}", *SHAPES[i % 3 == 0]) for i in range(cascades))
    return CascadeProblem(name="wide", cluster=even_cluster(nodes, 8), cascades=rows)


def patiently(_placed):
    return False


def never(_placed):
    raise AssertionError("a known pod was searched again")


def made_of(a_problem, spent=patiently):
    digest = Digest(a_problem)
    made = Pods(digest, PodSolver(PodWalk(digest, lower_bound(digest), 0)), 0)
    made.begin(spent)
    return digest, made


@pytest.fixture
def pods():
    return made_of(problem())


def cascades_of(rows):
    return sorted(c for pod in rows for c in pod.site.cascades)


def test_all_pods_are_walked_together_at_last(monkeypatch):
    begun = []
    walk = Search._walk_near

    def walked(self, length, over):
        begun.append((self._clock.elapsed(), length))
        walk(self, length, over)

    monkeypatch.setattr(Search, "_walk_near", walked)
    limits = Limits(time_limit_s=2.0, deterministic=True, workers=1)
    result = solve_cascade(problem(8, 20), limits)
    assert check_plan(problem(8, 20), result.plan) == ()
    first_s, length = begun[0]
    assert first_s + length == pytest.approx(2.0, abs=0.01)
    assert length < 1.0


def test_pods_that_give_up_early_leave_the_time_to_other_searches(monkeypatch):
    lengths = []
    walk = Search._walk_near
    monkeypatch.setattr(
        Search, "_walk_near", lambda self, *given: lengths.append(given[0]) or walk(self, *given)
    )
    monkeypatch.setattr(pod_search, "_PATIENCE", 0)
    # Nor do proofs end the search.
    limits = Limits(time_limit_s=2.0, deterministic=True, workers=1)
    result = solve_cascade(problem(8, 20), limits, parts=Parts(proofs=False))
    assert check_plan(problem(8, 20), result.plan) == ()
    assert lengths
    assert max(lengths) < 1.0


def test_many_workers_are_few_threads(monkeypatch):
    """Hundreds would keep the main one from the interpreter, which looks at the clock."""
    counts = []
    crew, beside = pod_search.PodCrew, Seeding.run_with

    def counted(pods, solver, count):
        counts.append(count)
        return crew(pods, solver, count)

    monkeypatch.setattr(pod_search, "PodCrew", counted)
    monkeypatch.setattr(
        Seeding,
        "run_with",
        lambda self, others, *given: counts.append(others) or beside(self, others, *given),
    )
    large = problem(8, 20)
    parts = Parts(policy=random_cascade_policy(large), proofs=False)
    result = solve_cascade(large, Limits(time_limit_s=1.0, workers=1000), parts=parts)
    assert check_plan(large, result.plan) == ()
    assert len(counts) == 2
    assert max(counts) <= MOST_BESIDE


def test_all_nodes_and_cascades_are_dealt_out_evenly(pods):
    digest, made = pods
    assert cascades_of(made.pods) == list(range(24))
    assert sorted(n for pod in made.pods for n in pod.site.nodes) == list(range(12))
    area = PodSolver(PodWalk(digest, lower_bound(digest), 0)).area
    loads = [sum(area[c] for c in pod.site.cascades) for pod in made.pods]
    assert max(loads) - min(loads) <= max(area)
    assert check_plan(digest.problem, to_plan(digest, made.schedule())) == ()


def test_larger_pods_get_more_work():
    digest, made = made_of(problem(nodes=11, cascades=30))
    area = PodSolver(PodWalk(digest, lower_bound(digest), 0)).area
    assert {len(pod.site.nodes) for pod in made.pods} == {5, 6}
    loads = [sum(area[c] for c in p.site.cascades) / len(p.site.nodes) for p in made.pods]
    assert max(loads) - min(loads) <= max(area) / 2


@pytest.mark.slow
def test_trades_only_ever_shorten_and_keep_every_cascade():
    rows = tuple(
        two_stage(f"c{i}", {1: 500 + 37 * i}, {2: 2000 + 91 * i, 4: 1100 + 50 * i})
        for i in range(48)
    )
    # The first pods are not searched at all.
    digest, made = made_of(replace(problem(), cascades=rows), lambda _placed: True)
    begun = made.makespan_us
    for _ in range(4):
        before = made.makespan_us
        trades = made.trades(32.0)
        made.settle(trades, made.search(trades, patiently))
        assert cascades_of(made.pods) == list(range(48))
        assert made.makespan_us <= before
    assert made.makespan_us < begun
    plan = to_plan(digest, made.schedule())
    assert check_plan(digest.problem, plan) == ()
    assert plan.makespan_us <= made.makespan_us


def test_two_trades_of_one_pod_are_not_both_done(pods):
    _, made = pods
    trade = next(t for _ in range(100) for t in made.trades(4.0) if len(t.old) == 2)
    fresh = [replace(pod, makespan_us=1) for pod in trade.old]
    made.settle([trade, trade], [*fresh, *fresh])
    assert cascades_of(made.pods) == list(range(24))


def test_cascades_that_need_wide_groups_get_wide_pods():
    """With 40 devices a chain ends in time, with 8 it takes seven times as long."""
    wide = tuple(two_stage(f"w{i}", {1: 10}, {8: 2900, 40: 400}) for i in range(2))
    small = tuple(two_stage(f"c{i}", {1: 10}, {4: 900 + i}) for i in range(40))
    digest, made = made_of(replace(problem(nodes=17), cascades=wide + small))
    assert sorted(n for pod in made.pods for n in pod.site.nodes) == list(range(17))
    assert {len(pod.site.nodes) for pod in made.pods} == {4, 5}
    for pod in made.pods:
        assert len(pod.site.nodes) == 5 or not {0, 1} & {*pod.site.cascades}
    assert made.makespan_us < 2900
    assert check_plan(digest.problem, to_plan(digest, made.schedule())) == ()


def test_no_cascade_fills_more_than_half_a_pod():
    large = tuple(two_stage(f"l{i}", {1: 10}, {12: 1000}) for i in range(4))
    small = tuple(two_stage(f"c{i}", {1: 10}, {1: 900 + i}) for i in range(40))
    digest = Digest(replace(problem(), cascades=large + small))
    solver = PodSolver(PodWalk(digest, lower_bound(digest), 0))
    pods = deal(digest, solver, random.Random(0))
    assert sorted(c for pod in pods for c in pod.cascades) == list(range(44))
    for pod in pods:
        largest = max(solver.area[c] for c in pod.cascades)
        assert largest / sum(solver.area) * 96 <= 8 * len(pod.nodes) / 2 + 1


def test_known_pods_are_put_together_anew_where_that_is_faster():
    """Both heavy cascades are on one pod, where a pod with one of them is known."""
    rows = tuple(two_stage(f"c{i}", {1: 10}, {16: 1000 if i % 2 else 3000}) for i in range(4))
    digest = Digest(replace(problem(nodes=4), cascades=rows))
    solver = PodSolver(PodWalk(digest, 1, 0))
    made = Pods(digest, solver, 0)
    apart = [Wanted(solver.site((0, 1), (0, 2))), Wanted(solver.site((2, 3), (1, 3)))]
    made.pods = solver.solve(apart, patiently)
    before = made.makespan_us
    (known,) = solver.solve([Wanted(solver.site((0, 1), (0, 1)))], patiently)
    made.recombine()
    assert made.makespan_us == known.makespan_us < before
    assert cascades_of(made.pods) == [0, 1, 2, 3]
    assert sorted(n for pod in made.pods for n in pod.site.nodes) == [0, 1, 2, 3]


def test_what_is_known_of_equal_pods_is_used_for_others():
    digest = Digest(problem())
    solver = PodSolver(PodWalk(digest, 1, 0))
    (searched,) = solver.solve([Wanted(solver.site((0, 1), (0, 1, 2, 3)))], patiently)
    # The same shapes in another order, on other nodes.
    twin = Wanted(solver.site((4, 5), (7, 6, 8, 9)), searched.makespan_us + 1)
    (pod,) = solver.solve([twin], never)
    assert pod.makespan_us == searched.makespan_us
    assert cascades_of((pod,)) == [6, 7, 8, 9]
    assert {d for _, group in pod.runs for d in group} <= set(range(32, 48))


def test_searches_in_vain_are_remembered():
    digest = Digest(problem())
    solver = PodSolver(PodWalk(digest, 1, 0))
    site = solver.site((0, 1), (0, 1, 2, 3))
    limit_us = lower_bound(digest) // 2
    assert not solver.in_vain(site, limit_us)
    for _ in range(3):
        assert solver.solve([Wanted(site, limit_us)], patiently) == [None]
    assert solver.in_vain(site, limit_us)
    assert not solver.in_vain(site, 1 << 60)


def test_what_another_thread_found_is_known_here():
    digest = Digest(problem())
    here, there = PodSolver(PodWalk(digest, 1, 0)), PodSolver(PodWalk(digest, 1, 1))
    want = Wanted(here.site((0, 1), (0, 1, 2, 3)))
    pod = there.walk.search(want, patiently)
    here.remember(pod)
    assert here.solve([want], never) == [pod]
    slow = Wanted(here.site((2, 3), (0, 3, 6, 9)), 5)
    for _ in range(3):
        here.remember(there.walk.search(slow, patiently))
    assert here.in_vain(slow.site, 5)
    # Found too late for one, it may do for another.
    assert here.solve([slow._replace(limit_us=1 << 60)], never) != [None]


def test_pods_are_searched_where_they_are_and_more_deeply_again():
    digest = Digest(problem())
    solver = PodSolver(PodWalk(digest, 1, 0))
    site = solver.site((3, 7), (0, 1, 2, 3))
    found = [solver.walk.search(Wanted(site, effort=k), patiently) for k in range(3)]
    for pod in found:
        assert sorted(i for i, _ in pod.runs) == [i for c in range(4) for i in digest.cascades[c]]
        assert {digest.node_of[d] for _, group in pod.runs for d in group} <= {3, 7}
    again = Wanted(site, found[2].makespan_us, found[2])
    assert solver.walk.search(again, patiently).makespan_us <= 1.05 * found[2].makespan_us


def test_groups_that_are_no_equal_share_of_their_nodes_are_placed():
    """Degree 10 on nodes of 8 and 2."""
    rows = tuple(two_stage(f"c{i}", {1: 100}, {10: 1000 + i}) for i in range(3))
    whole = even_cluster(2, 8)
    small = replace(whole.nodes[1], nic_of_device=whole.nodes[1].nic_of_device[:2], name="small")
    cluster = replace(whole, nodes=(whole.nodes[0], small))
    digest = Digest(CascadeProblem(name="uneven", cluster=cluster, cascades=rows))
    solver = PodSolver(PodWalk(digest, 1, 0))
    (pod,) = solver.solve([Wanted(solver.site((0, 1), (0, 1, 2)))], patiently)
    assert pod.makespan_us >= 3000
    assert cascades_of((pod,)) == [0, 1, 2]
