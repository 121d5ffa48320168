"""The search over batchings: every clip once, whatever changes."""

import random

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_search import HEAT, BatchingSearch
from arachne_opt.solvers.cascade.walks.cooling import Heat
from tests.batching_builders import all_batchings, one_shape, random_batching
from tests.strategies import even_cluster, seeded_plan


def searching(problem, seed=0):
    return BatchingSearch(BatchingDigest(problem), seed)


def begun(search, batching, seed=0):
    """Where the search is with some plan for a batching."""
    placement = search.digest.problem.placement_problem(batching)
    return search.start(placement, seeded_plan(placement, seed))


def steps(count):
    """Progress by calls."""
    done = [0]

    def share(_placed):
        done[0] += 1
        return done[0] / count

    return share


@pytest.mark.parametrize("seed", range(12))
def test_walks_hold_every_clip_once_and_end_in_legal_plans(seed):
    problem = random_batching(seed)
    search = searching(problem)
    batchings = list(all_batchings(problem))
    for batching in random.Random(seed).sample(batchings, min(3, len(batchings))):
        states = search.walk(begun(search, batching, seed), HEAT, steps(60))
        assert len({search.batching(state) for state in states}) == len(states)
        assert [s.makespan_us for s in states] == sorted(s.makespan_us for s in states)
        for state in states:
            found = search.batching(state)
            placement = problem.placement_problem(found)
            problem.iteration(found)  # raises where a clip is lost or there twice
            plan = search.plan(state, placement)
            assert check_plan(placement, plan) == ()
            assert plan.makespan_us <= state.makespan_us


def test_a_walk_remembers_the_shortest_of_many_batchings():
    problem = one_shape(even_cluster(1, 2), 12, {k: {1: 10 * k + 5} for k in range(1, 8)})
    search = searching(problem)
    met = search.walk(begun(search, ((1,) * 12,)), Heat(0.5, 0.5), steps(2000))
    assert 64 <= len(met) <= 128
    assert met[0].makespan_us == 65  # six clips on each device, together


def test_all_batchings_are_within_reach():
    problem = one_shape(even_cluster(1, 2), 4, {k: {1: 10 * k} for k in (1, 2, 3, 4)})
    search, seen = searching(problem), set()
    at = begun(search, ((4,),))
    for _ in range(2000):
        at, _placed = search._recut(at, 100.0)
        seen.add(search.batching(at))
    assert seen == set(all_batchings(problem))


@pytest.mark.parametrize("seed", range(6))
def test_a_given_plan_is_where_the_walk_begins(seed):
    problem = random_batching(seed)
    batching = next(iter(all_batchings(problem)))
    placement = problem.placement_problem(batching)
    plan = seeded_plan(placement, seed)
    search = searching(problem)
    state = search.start(placement, plan)
    assert search.batching(state) == batching
    assert state.makespan_us <= plan.makespan_us
    used = {(p.cascade, p.task): p.degree for p in plan.placements}
    begun = {(p.cascade, p.task): p.degree for p in search.plan(state, placement).placements}
    assert begun == used
