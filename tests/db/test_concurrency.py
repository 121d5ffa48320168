"""Many processes at one database: nothing lost, nothing double, nothing half."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from sqlalchemy import text

from arachne_opt.db import migrate
from arachne_opt.db.store import PlanStore
from tests.db.builders import fingerprint, plan_record
from tests.db.workers import finish, start

# Shorter than that of users, so that tests need not wait for it.
LEASE_S = 2


def test_four_processes_that_read_then_write_lose_no_update(url: str) -> None:
    with PlanStore.open(url) as store:
        store.add_plan(plan_record())
        store.database.write(
            lambda c: c.execute(text("UPDATE cost_models SET holdout_error = 0")) and None
        )
        finish(*[start("count_up", url, 50) for _ in range(4)])
        query = text("SELECT holdout_error FROM cost_models")
        assert store.database.read(lambda c: c.execute(query).scalar()) == 200


@pytest.mark.slow
def test_mixed_work_of_eight_processes_is_neither_lost_nor_doubled(url: str) -> None:
    outputs = finish(*[start("mix", url, 60, seed) for seed in range(8)], timeout_s=300)
    stored = [line for output in outputs for line in output.split()]
    with PlanStore.open(url) as store:
        listed = [plan.id for plan in store.list_plans(limit=10_000)]
        query = text("SELECT count(*), count(DISTINCT fingerprint) FROM problems")
        rows = store.database.read(lambda c: tuple(c.execute(query).one()))
    assert sorted(listed) == sorted(stored)
    assert len(set(stored)) == len(stored) > 100
    assert rows[0] == rows[1] <= 5
    assert migrate.check(url).ok


def _killed(url: str, times: int) -> None:
    (output,) = finish(start("store_until_killed", url, times, 1), timeout_s=300)
    known = set(output.split())
    assert len(known) >= times
    health = migrate.check(url)
    assert health.ok, health
    with PlanStore.open(url) as store:
        listed = {plan.id for plan in store.list_plans(limit=10_000)}
        assert known <= listed
        # A plan whose writer died between storing it and telling us is whole all the same.
        for plan_id in listed - known:
            assert len(store.get_plan(plan_id).plan["runs"]) == 200


def test_writers_that_are_killed_leave_whole_plans_or_none(url: str) -> None:
    _killed(url, times=5)


@pytest.mark.slow
def test_twenty_five_kills_leave_whole_plans_or_none(url: str) -> None:
    """benchmarks/plan_store.py kills 200."""
    _killed(url, times=25)


def test_equal_requests_of_three_processes_are_solved_once(url: str) -> None:
    outputs = finish(*[start("solve", url, "key", 0.5) for _ in range(3)])
    answers = [output.split()[-1] for output in outputs]
    assert sorted(answers) == ["found"] * 2 + ["solved"]
    with PlanStore.open(url) as store:
        assert len(store.list_plans(fingerprint=fingerprint("key"))) == 1


def _held(url: str, lease_s: float) -> subprocess.Popen[str]:
    """A process that holds the lease, and another one that waits for it."""
    first = start("solve", url, "key", 600, lease_s)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["ready\n", "alone\n"]
    return first


def _waiting(url: str, lease_s: float) -> subprocess.Popen[str]:
    second = start("solve", url, "key", 0, lease_s)
    assert second.stdout is not None
    assert [second.stdout.readline() for _ in range(2)] == ["ready\n", "waits\n"]
    return second


def _takes_over(second: subprocess.Popen[str], lease_s: float) -> None:
    """Within the lease and two seconds."""
    began = time.monotonic()
    output, complaints = second.communicate(timeout=lease_s + 30)
    assert time.monotonic() - began < lease_s + 2
    assert output.split() == ["alone", "solved"]
    assert f"was silent for {lease_s:.0f} s: its request is taken over" in complaints


def test_another_process_takes_over_from_one_that_is_killed(url: str) -> None:
    first = _held(url, LEASE_S)
    second = _waiting(url, LEASE_S)
    first.kill()
    _takes_over(second, LEASE_S)
    first.communicate()


@pytest.mark.slow
def test_a_process_that_lives_is_waited_for_longer_than_a_lease(url: str) -> None:
    first = start("solve", url, "key", 1.6 * LEASE_S, LEASE_S)
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["ready\n", "alone\n"]
    second = _waiting(url, LEASE_S)
    outputs = finish(first, second)
    assert [output.split()[-1] for output in outputs] == ["solved", "found"]


@pytest.mark.slow
def test_a_process_that_is_stopped_is_replaced_and_notices_when_it_comes_back(url: str) -> None:
    """As a host that vanishes does: its connections stay open and say nothing."""
    first = _held(url, LEASE_S)
    second = _waiting(url, LEASE_S)
    first.send_signal(signal.SIGSTOP)
    _takes_over(second, LEASE_S)
    # A third one is at work when the first comes back, which must not end its lease.
    third = start("solve", url, "key", 2 * LEASE_S, LEASE_S, "again")
    assert third.stdout is not None
    assert [third.stdout.readline() for _ in range(2)] == ["ready\n", "alone\n"]
    first.send_signal(signal.SIGCONT)
    assert first.stderr is not None
    assert "another one has taken its request over" in first.stderr.readline()
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    fourth = _waiting(url, LEASE_S)
    assert [o.split()[-1] for o in finish(third, fourth)] == ["solved", "found"]
    with PlanStore.open(url) as store:
        assert len(store.list_plans(fingerprint=fingerprint("key"))) == 2
        assert store.stats().rows["leases"] == 0
    assert migrate.check(url).ok


@pytest.mark.slow
def test_32_identical_requests_are_solved_once_and_answered_alike(url: str) -> None:
    (output,) = finish(start("plan_cascade_at_once", url, 32, 3), timeout_s=300)
    answers = [line.split() for line in output.splitlines()]
    assert sorted(how for how, *_ in answers) == ["found"] * 31 + ["solved"]
    assert len({(plan, objective) for _, plan, objective in answers}) == 1
    with PlanStore.open(url) as store:
        assert len(store.list_plans()) == 1


@pytest.mark.slow
def test_when_the_solving_process_is_killed_another_one_finishes(url: str) -> None:
    first = start("plan_cascade", url, 600, LEASE_S)
    assert first.stdout is not None
    assert first.stdout.readline() == "ready\n"
    time.sleep(1)
    second = start("plan_cascade", url, 1, LEASE_S)
    assert second.stdout is not None
    assert [second.stdout.readline() for _ in range(2)] == ["ready\n", "waits\n"]
    first.kill()
    killed = time.monotonic()
    (output,) = finish(second, timeout_s=60)
    assert output.startswith("solved ")
    # The lease and two seconds, of which one is search; more to load solvers on a busy machine.
    assert time.monotonic() - killed < LEASE_S + 10
    first.communicate()


def test_three_processes_may_make_one_missing_file(tmp_path) -> None:
    path = tmp_path / "plans.db"
    ids = finish(*[start("open_and_store", path) for _ in range(3)])
    assert len({line.strip() for line in ids}) == 3
    with PlanStore.open(path) as store:
        assert len(store.list_plans()) == 3
    assert migrate.check(str(path)).ok
