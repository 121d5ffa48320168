"""The cascade policy: legal starts from any weights, and one network in numpy and torch."""

import threading
import time

import numpy as np
import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers import pod_search
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.race_search import RaceSearch
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.solvers.search import Parts
from arachne_opt.solvers.seeding import Seeding
from arachne_opt.solvers.seeds import cascades, network
from arachne_opt.solvers.seeds.cascade_features import view
from arachne_opt.solvers.seeds.cascades import Advised, SeedSearch, advise
from tests.seed_builders import random_cascade_policy
from tests.strategies import even_cluster, random_problem, two_stage


def steps(count):
    """Progress of a turn that is over after so many steps."""
    left = iter(range(1, count + 1))
    return lambda _placed: next(left) / count


def searching(problem, policy):
    digest = Digest(problem)
    return SeedSearch(Advised(FastDecoder(digest), policy, lower_bound(digest)), 0)


def drawn(problem, policy):
    search = searching(problem, policy)
    for _ in search.turn(steps(12)):
        pass
    return to_plan(Digest(problem), search.schedule)


@pytest.mark.parametrize("seed", range(12))
def test_any_weights_give_a_legal_plan(seed):
    problem = random_problem(seed)
    if problem.pinned:
        pytest.skip("the policy does not know pins, and is not asked where there are any")
    assert check_plan(problem, drawn(problem, random_cascade_policy(problem, seed))) == ()


def test_equal_seeds_draw_equal_plans():
    problem = random_problem(3)
    policy = random_cascade_policy(problem)
    assert drawn(problem, policy) == drawn(problem, policy)


def test_turns_draw_anew_or_go_on_from_the_best_and_never_end_worse():
    problem = random_problem(3)
    search = searching(problem, random_cascade_policy(problem))
    best_us = []
    for _ in range(4):
        for _ in search.turn(steps(12)):
            best_us.append(search.makespan_us)
    assert best_us == sorted(best_us, reverse=True)
    assert search.schedule.makespan_us <= best_us[-1]


def test_no_two_draws_are_the_same_and_the_best_is_kept(monkeypatch):
    numbers, made = [], []
    choice = cascades.Draws.choice

    def drawn(self, number):
        numbers.append(number)
        made.append(choice(self, number))
        return made[-1]

    monkeypatch.setattr(cascades.Draws, "choice", drawn)
    problem = random_problem(3)
    search = searching(problem, random_cascade_policy(problem))
    for _ in range(3):  # every second turn draws nothing
        for _ in search.turn(steps(200)):
            pass
    assert len(numbers) > 20
    assert numbers == list(range(len(numbers)))
    walker = Walks(Digest(problem)).walker(0)
    assert search.makespan_us <= min(walker.begin(row, ANY_US) for row in made)


@pytest.mark.parametrize("late", [0.0, 0.5, 1.7])
def test_a_turn_ends_where_its_time_is_over_after_the_draws(late):
    """Draws may take longer than the turn, and the search may be over then."""
    problem = random_problem(3)
    search = searching(problem, random_cascade_policy(problem))
    asked = []

    def progress(_placed):
        asked.append(late if len(asked) < 1 else 1.0)
        return asked[-1]

    for _ in search.turn(progress):
        assert len(asked) < 50
    assert check_plan(problem, to_plan(Digest(problem), search.schedule)) == ()


def test_a_policy_goes_on_where_pods_are_behind(monkeypatch):
    lengths = []
    run = Seeding.run
    monkeypatch.setattr(
        Seeding, "run", lambda self, *given: lengths.append(given[0]) or run(self, *given)
    )
    # As if pods were always far behind.
    monkeypatch.setattr(pod_search, "_BEHIND", 0.0)
    rows = tuple(
        two_stage(f"c{i}", {1: 900, 2: 500}, {2: 3100 + 190 * i, 4: 1700 + 97 * i})
        for i in range(30)
    )
    problem = CascadeProblem(name="large", cluster=even_cluster(8, 8), cascades=rows)
    parts = Parts(policy=random_cascade_policy(problem))
    limits = Limits(time_limit_s=2.5, deterministic=True, workers=1)
    result = solve_cascade(problem, limits, parts=parts)
    assert check_plan(problem, result.plan) == ()
    assert lengths.count(pod_search._TURN) > 1


def seeding_of(problem, limits):
    digest = Digest(problem)
    clock, policy = Clock(limits, None), random_cascade_policy(problem)
    best = Incumbent(digest, clock, None)
    best.raise_bound(lower_bound(digest), "bounds")
    return Seeding(digest, best, clock, policy, limits.seed), best


def test_the_best_of_what_all_threads_draw_is_kept(monkeypatch):
    searches = []
    raced = Seeding._raced
    monkeypatch.setattr(
        Seeding, "_raced", lambda *given: searches.append(raced(*given)) or searches[-1]
    )
    rows = tuple(two_stage(f"c{i}", {1: 900 + i, 2: 500}, {2: 3100, 4: 1700}) for i in range(9))
    problem = CascadeProblem(name="some", cluster=even_cluster(2, 4), cascades=rows)
    seeding, best = seeding_of(problem, Limits(time_limit_s=5))
    if not seeding._begun().beside:
        pytest.skip("walks without a compiler hold the interpreter")
    assert seeding.run_with(3, 0.1, lambda: False)
    assert len(searches) == 3
    assert best.schedule.makespan_us <= min(search.makespan_us for search in searches)
    assert seeding.makespan_us == best.schedule.makespan_us
    # What goes on knows it, too.
    assert seeding._begun().makespan_us <= best.schedule.makespan_us


def test_threads_that_draw_end_with_the_search():
    problem = random_problem(3)
    seeding, best = seeding_of(problem, Limits(time_limit_s=60))
    begin = time.monotonic()
    seeding.run_with(2, 30.0, lambda: True)
    assert time.monotonic() - begin < 15
    assert not [t for t in threading.enumerate() if t.name.startswith("seeds")]
    assert check_plan(problem, to_plan(Digest(problem), best.schedule)) == ()


def test_nothing_runs_beside_walks_that_hold_the_interpreter(monkeypatch):
    monkeypatch.setattr(RaceSearch, "beside", False)
    monkeypatch.setattr(Seeding, "_raced", None)
    seeding, best = seeding_of(random_problem(3), Limits(time_limit_s=5))
    seeding.run_with(2, 0.05, lambda: False)
    assert best.schedule is not None


def test_products_in_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(s).astype(np.float32) for s in ((5_000, 60), (60, 64)))
    assert x.size * 64 > 10 * network._SMALL
    assert np.allclose(network._product(x, weight), x @ weight, atol=1e-4)
    assert network._product(x[:0], weight).shape == (0, 64)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_with_a_policy_ends_with_a_legal_plan(seed):
    problem = random_problem(seed)
    parts = Parts(policy=random_cascade_policy(problem, seed))
    limits = Limits(time_limit_s=0.05, deterministic=True, workers=1)
    one, again = (solve_cascade(problem, limits, parts=parts) for _ in range(2))
    assert check_plan(problem, one.plan) == ()
    assert one.plan == again.plan


def test_the_network_computes_what_the_trained_one_does():
    torch = pytest.importorskip("torch")
    from arachne_opt.learning import cascade_training as training

    problem = random_problem(5)
    digest = Digest(problem)
    decoder, bound_us = FastDecoder(digest), lower_bound(digest)
    plan = drawn(problem, random_cascade_policy(problem))
    lesson = training.cascade_lesson(problem, plan)
    tensors = training.train_cascades([lesson, lesson], seed=0, epochs=2)
    policy = random_cascade_policy(problem)
    policy = type(policy)(policy=policy.policy, features=1, version="", report={}, tensors=tensors)
    advice = advise(policy, view(decoder, bound_us))
    with torch.no_grad():
        logits, start = training.run_tensors(tensors, [lesson])
    assert np.allclose(advice.logits, logits.numpy(), atol=1e-4)
    assert np.allclose(advice.start, start.numpy(), atol=1e-4)
