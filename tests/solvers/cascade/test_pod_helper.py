"""Pods in a second process: answers, failures, and its end."""

import os
import time

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_helper import pod_helpers
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pods import Pods
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import even_cluster, two_stage


def wide_problem() -> CascadeProblem:
    rows = tuple(
        two_stage(f"c{i}", {1: 500 + 37 * i}, {2: 2000 + 91 * i, 4: 1100 + 50 * i})
        for i in range(48)
    )
    return CascadeProblem(name="wide", cluster=even_cluster(12, 8), cascades=rows)


def at_once(_placed):
    return True


@pytest.fixture
def helped():
    digest = Digest(wide_problem())
    target_us = lower_bound(digest)
    pods = Pods(digest, PodSolver(digest, target_us, 0), 0)
    # Stopped at once: there is something left to be found.
    pods.begin(at_once)
    (helper,) = pod_helpers(digest, target_us, 0, 1)
    yield digest, pods, helper
    helper.close()


def answers_within(helper, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answers := helper.answers():
            return answers
        time.sleep(0.01)
    return []


@pytest.mark.slow
def test_a_helper_makes_pods_faster(helped):
    digest, pods, helper = helped
    before = pods.makespan_us
    for _ in range(3):
        helper.ask(tuple(pods.trades(32.0)))
        (answer,) = answers_within(helper, 30)
        pods.remember(*answer)
        pods.settle(*answer)
    assert pods.makespan_us < before
    assert sorted(c for pod in pods.pods for c in pod.site.cascades) == list(range(48))
    assert check_plan(digest.problem, to_plan(digest, pods.schedule())) == ()


def test_answers_to_what_has_changed_since_change_nothing(helped):
    _, pods, helper = helped
    trades = pods.trades(32.0)
    helper.ask(tuple(trades))
    pods.settle(trades, pods.search(trades, lambda _placed: False))
    (answer,) = answers_within(helper, 30)
    pods.settle(*answer)
    assert sorted(c for pod in pods.pods for c in pod.site.cascades) == list(range(48))


def test_a_helper_takes_few_batches_ahead_and_none_when_it_is_dead(helped):
    _, pods, helper = helped
    trades = pods.trades(8.0)
    while helper.wants():
        helper.ask(tuple(trades))
    assert len(answers_within(helper, 30)) >= 1
    assert helper.wants()
    os.kill(helper.pid, 9)
    end = time.monotonic() + 10
    while helper.wants() and time.monotonic() < end:
        time.sleep(0.01)
    assert not helper.wants()


def test_a_closed_helper_is_gone_without_waiting_for_its_job(helped):
    _, pods, helper = helped
    helper.ask(tuple(pods.trades(32.0) * 50))
    began = time.monotonic()
    helper.close()
    assert time.monotonic() - began < 2
    with pytest.raises(ProcessLookupError):
        os.kill(helper.pid, 0)


def test_without_an_interpreter_to_start_there_is_no_helper(monkeypatch):
    digest = Digest(wide_problem())
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert pod_helpers(digest, 1, 0, 1) == []
    monkeypatch.setattr("sys.executable", "")
    assert pod_helpers(digest, 1, 0, 1) == []
    result = cascade_solver().solve(wide_problem(), Limits(time_limit_s=0.5))
    assert check_plan(wide_problem(), result.plan) == ()


def test_deterministic_solves_start_no_process(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", refuse)
    limits = Limits(time_limit_s=0.3, deterministic=True)
    first, second = (cascade_solver().solve(wide_problem(), limits) for _ in range(2))
    assert first.plan == second.plan
