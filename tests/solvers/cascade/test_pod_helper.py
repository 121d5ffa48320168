"""Pods in a second process: answers, failures, and its end."""

import os
import time

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_helper import Job, start_helpers
from arachne_opt.solvers.cascade.pods import Pods, Way
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import even_cluster, two_stage

SHAPES = ({1: 900, 2: 500}, {4: 3100, 8: 1700}), ({2: 300}, {2: 2500, 4: 1300})


def wide_problem() -> CascadeProblem:
    rows = tuple(two_stage(f"c{i}", *SHAPES[i % 3 == 0]) for i in range(24))
    return CascadeProblem(name="wide", cluster=even_cluster(12, 8), cascades=rows)


@pytest.fixture
def helped():
    digest = Digest(wide_problem())
    target_us = lower_bound(digest)
    pods = Pods(digest, target_us, 0)
    pods.start()
    (helper,) = start_helpers(digest, target_us, 0, 1)
    yield digest, pods, helper
    helper.close()


def answers_within(helper, seconds):
    end = time.monotonic() + seconds
    out = []
    while helper.busy and time.monotonic() < end:
        out += helper.answers()
        time.sleep(0.01)
    return out


def test_a_helper_improves_pods_and_holds_them_until_it_answers(helped):
    digest, pods, helper = helped
    before = pods.makespan_us
    for _ in range(12):
        way, old = pods.next_attempt()
        helper.send(Job(way, old, 0.05))
        assert not {*pods.next_attempt(helper.busy)[1]} & {*old}
        for job, fresh in answers_within(helper, 30):
            assert max(pod.makespan_us for pod in fresh) <= job.pods[0].makespan_us
            pods.replace(job.pods, fresh)
    assert pods.makespan_us < before
    assert sorted(c for pod in pods.pods for c in pod.cascades) == list(range(24))
    assert check_plan(digest.problem, to_plan(digest, pods.schedule())) == ()


def test_a_helper_that_dies_gives_its_pods_back(helped):
    _, pods, helper = helped
    helper.send(Job(Way.AGAIN, pods.pods[:1], 1e6))
    os.kill(helper.pid, 9)
    assert answers_within(helper, 10) == []
    assert helper.busy == ()
    assert not helper.wants()


def test_a_closed_helper_is_gone_without_waiting_for_its_job(helped):
    _, pods, helper = helped
    helper.send(Job(Way.AGAIN, pods.pods[:1], 1e6))
    began = time.monotonic()
    helper.close()
    assert time.monotonic() - began < 2
    with pytest.raises(ProcessLookupError):
        os.kill(helper.pid, 0)


def test_without_an_interpreter_to_start_there_is_no_helper(monkeypatch):
    digest = Digest(wide_problem())
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert start_helpers(digest, 1, 0, 1) == []
    monkeypatch.setattr("sys.executable", "")
    assert start_helpers(digest, 1, 0, 1) == []
    result = cascade_solver().solve(wide_problem(), Limits(time_limit_s=0.5))
    assert check_plan(wide_problem(), result.plan) == ()


def test_deterministic_solves_start_no_process(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", refuse)
    limits = Limits(time_limit_s=0.3, deterministic=True)
    first, second = (cascade_solver().solve(wide_problem(), limits) for _ in range(2))
    assert first.plan == second.plan
