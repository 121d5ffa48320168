"""Planning ahead, with real background processes."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.errors import InfeasibleError, InputError
from arachne_opt.importers.workloads import read_workload_log
from arachne_opt.models import model_spec
from arachne_opt.planning.plan_ahead import PlanAhead, ReadyPlan, Source
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.quick import quick_plan
from tests.strategies import even_cluster, random_problem, renumber, two_stage

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT = Limits(time_limit_s=0.2, workers=1)
PATIENCE_S = 30.0


def problems(count: int, *, kinds: int | None = None) -> list[CascadeProblem]:
    """Iterations on one cluster; with ``kinds`` they repeat, with other names and orders."""
    made = []
    for number in range(count):
        kind = number % (kinds or count)
        rows = [
            two_stage(f"c{i}", {1: 10_000 + kind}, {1: 90_000 + 7 * i, 2: 50_000, 4: 30_000})
            for i in range(6)
        ]
        made.append(
            CascadeProblem(name=f"it{number}", cluster=even_cluster(2, 4), cascades=tuple(rows))
        )
    return [renumber(p, n) if kinds else p for n, p in enumerate(made)]


def checked(ready: ReadyPlan) -> ReadyPlan:
    verify(ready.problem, ready.plan, ready.objective_us)
    assert ready.bound_us <= ready.objective_us
    return ready


def gone(process_id: int) -> bool:
    """Whether a process has ended, or is about to be reaped."""
    with suppress(OSError):
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z"
    return True


def eventually(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    until_s = time.monotonic() + patience_s
    while time.monotonic() < until_s:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_plans_are_ready_before_they_are_asked_for() -> None:
    given = problems(4)
    with PlanAhead(given, SHORT, ahead=3) as ahead:
        first = checked(ahead.get(0, deadline_s=PATIENCE_S))
        assert first.source is Source.PLANNED
        assert 0 < first.blocked_s < PATIENCE_S
        time.sleep(2)  # the training of the first iteration
        for number in (1, 2, 3):
            ready = checked(ahead.get(number))
            assert ready.source is Source.PLANNED
            assert ready.blocked_s == 0
            assert ready.waited_s < 0.5
            assert ready.problem is given[number]


def test_get_does_not_wait_for_a_process_that_has_nothing_yet() -> None:
    with PlanAhead(problems(2), Limits(time_limit_s=60, workers=1)) as ahead:
        # The process has not even started to import.
        ready = checked(ahead.get(0))
        assert ready.source is Source.LIST
        assert ready.blocked_s == 0
        assert ready.waited_s < 1
        assert ready.objective_us == quick_plan(ready.problem)[0].makespan_us


def test_equal_iterations_are_planned_once() -> None:
    given = problems(6, kinds=2)
    with PlanAhead(given, SHORT) as ahead:
        ready = [checked(ahead.get(n, deadline_s=PATIENCE_S)) for n in range(6)]
    assert [r.repeated for r in ready] == [False, False, True, True, True, True]
    assert {r.source for r in ready} == {Source.PLANNED}
    assert len({r.objective_us for r in ready[::2]}) == 1
    assert all(r.blocked_s < 0.1 for r in ready[2:])


def test_the_plan_database_is_used_and_filled(tmp_path: Path) -> None:
    url = str(tmp_path / "plans.db")
    given = problems(2)
    for source in (Source.PLANNED, Source.KEPT):
        with PlanAhead(given, SHORT, database=url) as ahead:
            ready = [checked(ahead.get(n, deadline_s=PATIENCE_S)) for n in range(2)]
        assert {r.source for r in ready} == {source}


def test_a_broken_database_is_said_and_planned_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "plans.db"
    broken.write_text("this is no database")
    with PlanAhead(problems(1), SHORT, database=str(broken)) as ahead:
        assert checked(ahead.get(0, deadline_s=PATIENCE_S)).source is Source.PLANNED
    assert [r.levelno for r in caplog.records if "without a database" in r.message] == [
        logging.WARNING
    ]


def test_a_killed_process_is_replaced_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    given = problems(8)
    with PlanAhead(given, SHORT, ahead=2) as ahead:
        assert checked(ahead.get(0, deadline_s=PATIENCE_S)).source is Source.PLANNED
        for number in (1, 2):
            before = ahead.process_id
            assert before is not None
            os.kill(before, signal.SIGKILL)
            assert eventually(lambda old=before: ahead.process_id not in (None, old))
            assert checked(ahead.get(number)).blocked_s == 0
        assert checked(ahead.get(5, deadline_s=PATIENCE_S)).source is Source.PLANNED
    said = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert said == ["the planning process ended (killed by signal 9); it is started again"]


def test_without_any_process_list_schedules_serve(caplog: pytest.LogCaptureFixture) -> None:
    given = problems(4)
    with PlanAhead(given, SHORT, ahead=1) as ahead:
        while True:
            process_id = ahead.process_id
            if process_id is None:
                if eventually(lambda: ahead.process_id is not None, 1.0):
                    continue
                break
            os.kill(process_id, signal.SIGKILL)
            assert eventually(lambda old=process_id: ahead.process_id != old)
        began_s = time.monotonic()
        ready = [checked(ahead.get(n, deadline_s=60)) for n in range(4)]
        assert time.monotonic() - began_s < 5
    assert {r.source for r in ready} == {Source.LIST}
    said = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 2
    assert "list schedules serve" in said[-1]


def test_a_hanging_process_holds_up_nobody() -> None:
    with PlanAhead(problems(40), SHORT, ahead=20) as ahead:
        process_id = ahead.process_id
        assert process_id is not None
        os.kill(process_id, signal.SIGSTOP)
        try:
            for number in range(10):
                ready = checked(ahead.get(number))
                assert ready.source is Source.LIST
                assert ready.waited_s < 1
        finally:
            os.kill(process_id, signal.SIGCONT)


def test_closing_ends_the_process_and_breaks_off_its_search() -> None:
    with PlanAhead(problems(3), Limits(time_limit_s=600, workers=1)) as ahead:
        checked(ahead.get(0))
        process_id = ahead.process_id
        assert process_id is not None
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 10
    assert gone(process_id)
    ahead.close()
    assert checked(ahead.get(2, deadline_s=60)).waited_s < 1


def test_infeasible_iterations_say_so_and_the_others_go_on() -> None:
    given = [random_problem(1, feasible=False), problems(1)[0]]
    with PlanAhead(given, SHORT) as ahead:
        with pytest.raises(InfeasibleError):
            ahead.get(0, deadline_s=PATIENCE_S)
        assert checked(ahead.get(1, deadline_s=PATIENCE_S)).source is Source.PLANNED


def test_an_iteration_that_is_not_there_is_an_error() -> None:
    with PlanAhead(problems(1), SHORT) as ahead, pytest.raises(InputError, match="no iteration 1"):
        ahead.get(1)
    with pytest.raises(InputError, match="at least 1"):
        PlanAhead(problems(1), SHORT, ahead=0)


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    given = problems(50)
    with PlanAhead(given, SHORT, ahead=3) as ahead:
        send = ahead._process.send

        def count(message: dict[str, object]) -> None:
            asked.append(str(message["op"]))
            send(message)

        monkeypatch.setattr(ahead._process, "send", count)
        ahead.get(0)
        assert asked.count("plan") == 0  # the window was asked for at the start
        ahead.get(1)
        assert asked.count("plan") == 1
        ahead.get(20)
        assert asked.count("plan") == 5


SCRIPT = """
import os, sys, time
sys.path[:0] = [{root!r}]
from arachne_opt.planning.plan_ahead import PlanAhead
from arachne_opt.solvers.base import Limits
from tests.planning.test_plan_ahead import problems
with PlanAhead(problems(3), Limits(time_limit_s=600, workers=1)) as ahead:
    ahead.get(0)
    print(ahead.process_id, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_process_ends_with_its_parent(how: signal.Signals) -> None:
    """Ctrl-C ends it in order; after a kill it notices that its parent is gone."""
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(root=str(ROOT))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    process_id = int(parent.stdout.readline())
    assert not gone(process_id)
    parent.send_signal(how)
    _, err = parent.communicate(timeout=PATIENCE_S)
    assert eventually(lambda: gone(process_id), 10)
    if how is signal.SIGINT:
        assert "KeyboardInterrupt" in err
        assert err.count("Traceback") == 1


@pytest.mark.slow
def test_training_never_waits_after_its_first_iteration(shared_data: Path) -> None:
    """The public log at 30 s an iteration, fifty times as fast, with time limits to match."""
    speed = 50
    cluster = read_cluster("H100-80:8x4")
    costs = analytic_for_cluster(model_spec("hunyuanvideo-13b"), cluster)
    workload = read_workload_log(shared_data / "workloads" / "workload_hunyuan_720p_129.json")
    given = [build_problem(iteration, cluster, costs) for iteration in workload.iterations]
    limits = Limits(time_limit_s=20 / speed, workers=2)
    with PlanAhead(given, limits) as ahead:
        ready = []
        for number in range(len(given)):
            deadline_s = PATIENCE_S if number == 0 else 0.0
            ready.append(checked(ahead.get(number, deadline_s=deadline_s)))
            time.sleep(30 / speed)
    assert len(ready) == 18
    assert all(r.blocked_s == 0 for r in ready[1:])
    # The machine may stutter now and then; a wait for the process would show in most of them.
    assert sorted(r.waited_s for r in ready[1:])[len(ready) // 2] < 0.05
    assert sum(r.source is Source.PLANNED for r in ready[1:]) >= 9
