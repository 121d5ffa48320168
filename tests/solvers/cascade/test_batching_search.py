"""The search over batchings: every clip once, whatever changes, in this process or another."""

import pickle
import random
import time

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_helper import Walk, batching_helpers, walker
from arachne_opt.solvers.cascade.batching_search import FAR, BatchingSearch, State
from arachne_opt.solvers.seeds.policy_file import CASCADES
from arachne_opt.solvers.seeds.shipped import SHIPPED, resolved
from tests.batching_builders import all_batchings, one_shape, random_batching
from tests.strategies import even_cluster, seeded_plan


def searching(problem, seed=0):
    digest = BatchingDigest(problem)
    return BatchingSearch(digest, digest.lower_bound(), seed)


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
        search.seed(batching)
        search.anneal(search.best, FAR, steps(60))
        found = search.batching(search.best)
        placement = problem.placement_problem(found)
        problem.iteration(found)  # raises where a clip is lost or there twice
        plan = search.plan(search.best, placement)
        assert check_plan(placement, plan) == ()
        assert plan.makespan_us <= search.best.makespan_us


def test_all_batchings_are_within_reach():
    problem = one_shape(even_cluster(1, 2), 4, {k: {1: 10 * k} for k in (1, 2, 3, 4)})
    search, seen = searching(problem), set()
    search.seed(((4,),))
    search.begun(*search.best.start)
    for _ in range(2000):
        search._recut(100.0)
        seen.add(search.batching(search.now))
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


@pytest.mark.parametrize("seed", range(6))
def test_states_travel_unchanged(seed):
    problem = random_batching(seed)
    here, there = searching(problem), searching(problem, seed=5)
    here.seed(next(iter(all_batchings(problem))))
    here.anneal(here.best, FAR, steps(40))
    best: State = pickle.loads(pickle.dumps(here.best))
    other = there.begun(*best.start)
    assert sorted(other.running) == sorted(best.running)
    assert list(other.place.order) == list(best.place.order)
    assert other.place.key == best.place.key


@pytest.mark.parametrize("policy", [None, resolved(SHIPPED, CASCADES)], ids=["none", "shipped"])
def test_what_answers_in_a_helper_is_never_worse_than_where_it_begins(policy):
    problem = random_batching(4)
    search = searching(problem)
    search.seed(next(iter(all_batchings(problem))))
    answer = walker(0, problem, policy, 0)
    before_us = search.best.makespan_us
    found = search.begun(*answer(Walk(search.best, time.time() + 0.2)).start)
    assert found.makespan_us <= before_us


def test_a_helper_answers_from_its_own_process():
    problem = random_batching(4)
    search = searching(problem)
    search.seed(next(iter(all_batchings(problem))))
    (helper,) = batching_helpers(problem, resolved(SHIPPED, CASCADES), 0, 1)
    try:
        helper.ask(Walk(search.best, time.time()))
        assert helper.busy()
        end = time.monotonic() + 30
        while not (answers := helper.answers()) and time.monotonic() < end:
            time.sleep(0.01)
        assert not helper.busy()
        search.begun(*answers[0].found.start)
    finally:
        helper.close()
    assert not helper.wants()
    assert not helper.busy()
