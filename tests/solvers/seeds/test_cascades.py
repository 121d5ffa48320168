"""The cascade policy: legal starts from any weights, and one network in numpy and torch."""

import numpy as np
import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.solvers.search import Parts
from arachne_opt.solvers.seeds.cascade_features import view
from arachne_opt.solvers.seeds.cascades import advise, seed_schedule
from tests.seed_builders import random_cascade_policy
from tests.strategies import random_problem


def drawn(problem, policy, samples=5):
    digest = Digest(problem)
    left = [samples]

    def spent(_):
        left[0] -= 1
        return left[0] <= 0

    schedule = seed_schedule(FastDecoder(digest), policy, lower_bound(digest), 0, spent)
    return to_plan(digest, schedule)


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
