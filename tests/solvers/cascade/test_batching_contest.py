"""Contests of batchings: who is searched, how long, and by whom."""

import threading
import time

import pytest

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.batching_contest import Contest
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.batching_search import BatchingSearch
from arachne_opt.solvers.cascade.batching_trial import Trial
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.seeds.policy_file import CASCADES
from arachne_opt.solvers.seeds.shipped import SHIPPED, resolved
from tests.batching_builders import all_batchings, one_shape, random_batching
from tests.strategies import even_cluster, seeded_plan

POLICY = resolved(SHIPPED, CASCADES)
UNITS = Limits(time_limit_s=1, workers=1, deterministic=True)


def contest(problem, limits=UNITS, policy=POLICY, over=None, until=None):
    clock = Clock(limits)
    search = BatchingSearch(BatchingDigest(problem), limits.seed)
    until = limits.time_limit_s if until is None else until
    return Contest(search, policy, clock, limits, over or clock.over, until)


def batch_threads():
    return [t for t in threading.enumerate() if t.name.startswith("batching")]


@pytest.mark.parametrize("policy", [None, POLICY], ids=["rules", "policy"])
def test_the_best_of_all_batchings_wins(policy):
    """Five clips on two devices: 3 on one beside 2 on the other, 27 beside 20."""
    problem = one_shape(even_cluster(1, 2), 5, {1: {1: 12}, 2: {1: 20}, 3: {1: 27}})
    found = contest(problem, policy=policy)
    found.begin([((1,) * 5,)])
    found.run()
    assert found.best.plan.makespan_us == 27
    assert sorted(found.best.batching[0]) == [2, 3]
    assert found.tried > 1


def test_the_better_ones_have_second_turns(monkeypatch):
    turns = []

    def turn(self, progress):
        turns.append(self.batching)
        made(self, progress)

    made = Trial.turn
    monkeypatch.setattr(Trial, "turn", turn)
    monkeypatch.setattr(Trial, "done", False)
    problem = one_shape(even_cluster(1, 2), 6, {k: {1: 10 * k + 10} for k in (1, 2, 3)})
    batchings = list(all_batchings(problem))
    # Long enough for one round of 24 batchings with turns of 0.025.
    found = contest(problem, until=0.025 * (len(batchings) + 2 * 4) - 0.01)
    found.begin(batchings)
    found.run()
    assert len(batchings) == 24
    assert set(turns[:24]) == set(batchings)
    again, once = set(turns[24:]), set(batchings) - set(turns[24:])
    assert len(again) == 4
    assert max(found.trial(b).makespan_us for b in again) <= min(
        found.trial(b).makespan_us for b in once
    )
    assert found.best.plan.makespan_us == 40  # three clips on each device, together


def test_a_plan_that_is_known_is_kept_or_beaten():
    problem = random_batching(3)
    batching = next(iter(all_batchings(problem)))
    found = contest(problem, until=0.01)
    trial = found.trial(batching)
    plan = seeded_plan(trial.problem, 3)
    trial.know(plan)
    assert trial.makespan_us <= plan.makespan_us
    found.run()
    assert found.best.plan.makespan_us <= plan.makespan_us


def test_threads_are_gone_in_the_end():
    found = contest(random_batching(20), Limits(time_limit_s=0.4, workers=3))
    found.begin(list(all_batchings(random_batching(20)))[:6])
    found.run()
    assert found.tried > 1
    assert batch_threads() == []


def test_an_error_ends_the_other_threads_at_once():
    running = []

    def refuse():
        if running and time.monotonic() > running[0] + 0.2:
            raise RuntimeError("asked too often")
        return False

    found = contest(random_batching(20), Limits(time_limit_s=600, workers=3), over=refuse)
    found.begin(list(all_batchings(random_batching(20)))[:6])
    begin = time.monotonic()
    running.append(begin)
    with pytest.raises(RuntimeError, match="asked too often"):
        found.run()
    assert time.monotonic() < begin + 20
    assert batch_threads() == []
