"""Pods in threads beside the main one: answers, changes meanwhile, and the end."""

import threading
import time

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_crew import PodCrew
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pod_walk import PodWalk
from arachne_opt.solvers.cascade.pods import Pods
from arachne_opt.solvers.cascade.schedule import to_plan
from arachne_opt.solvers.portfolio import solve_cascade
from tests.strategies import even_cluster, two_stage


def wide_problem() -> CascadeProblem:
    rows = tuple(
        two_stage(f"c{i}", {1: 500 + 37 * i}, {2: 2000 + 91 * i, 4: 1100 + 50 * i})
        for i in range(48)
    )
    return CascadeProblem(name="wide", cluster=even_cluster(12, 8), cascades=rows)


def begun():
    digest = Digest(wide_problem())
    solver = PodSolver(PodWalk(digest, lower_bound(digest), 0))
    pods = Pods(digest, solver, 0)
    # Stopped at once: there is something left to be found.
    pods.begin(lambda _placed: True)
    return digest, pods, solver


def threads():
    return [t for t in threading.enumerate() if t.name.startswith("pods")]


def wait_for(crew):
    end = time.monotonic() + 20
    while not crew.idle() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.slow
def test_a_crew_makes_pods_faster_and_loses_no_cascade():
    digest, pods, solver = begun()
    before_us, crew = pods.makespan_us, PodCrew(pods, solver, 2)
    end = time.monotonic() + 20
    while pods.makespan_us >= before_us and time.monotonic() < end:
        crew.exchange(8.0)
        time.sleep(0.01)
    crew.close()
    assert pods.makespan_us < before_us
    assert sorted(c for pod in pods.pods for c in pod.site.cascades) == list(range(48))
    assert check_plan(digest.problem, to_plan(digest, pods.schedule())) == ()


def test_answers_to_what_has_changed_since_change_nothing():
    _, pods, solver = begun()
    crew = PodCrew(pods, solver, 1)
    crew.exchange(16.0)
    trades = pods.trades(32.0)
    pods.settle(trades, pods.search(trades, lambda _placed: False))
    wait_for(crew)
    crew.exchange(0.0)
    crew.close()
    assert sorted(c for pod in pods.pods for c in pod.site.cascades) == list(range(48))


def test_a_closed_crew_is_gone_without_waiting_for_its_work():
    _, pods, solver = begun()
    crew = PodCrew(pods, solver, 2)
    crew.exchange(400.0)
    assert threads()
    began = time.monotonic()
    crew.close()
    assert time.monotonic() - began < 2
    assert not threads()


def test_an_error_of_a_thread_is_raised_in_the_main_one(monkeypatch):
    _, pods, solver = begun()

    def broken(*_given):
        raise RuntimeError("broken")

    monkeypatch.setattr(solver.walk, "search", broken)
    crew = PodCrew(pods, solver, 1)
    crew.exchange(4.0)
    wait_for(crew)
    with pytest.raises(RuntimeError, match="broken"):
        crew.exchange(4.0)
    crew.close()


def test_no_thread_is_left_after_a_solve_and_deterministic_ones_start_none(monkeypatch):
    solve_cascade(wide_problem(), Limits(time_limit_s=0.8, workers=3))
    assert not threads()

    def refuse(*_given, **_options):
        raise AssertionError("a thread was started")

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.submit", refuse)
    limits = Limits(time_limit_s=0.3, deterministic=True)
    first, second = (solve_cascade(wide_problem(), limits) for _ in range(2))
    assert first.plan == second.plan
