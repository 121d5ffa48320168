"""One request at a time for a key."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update

from arachne_opt.db import lease_rows
from arachne_opt.db.locks import single_flight
from arachne_opt.db.models import LEASES
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError
from tests.db.builders import plan_record


def test_a_free_key_is_given_at_once_and_again(store: PlanStore) -> None:
    for _ in range(3):
        with single_flight(store, "k", 0, on_wait=lambda _: pytest.fail("waited")) as alone:
            assert alone


def test_a_taken_key_is_refused_after_the_time_and_told_meanwhile(
    store: PlanStore, url: str
) -> None:
    told: list[float] = []
    with PlanStore.open(url) as other, single_flight(store, "k", 1):
        before = time.monotonic()
        with single_flight(other, "k", 0.3, on_wait=told.append) as alone:
            assert not alone
        assert 0.25 < time.monotonic() - before < 5
        # Who did not get the key must not take it from who has it.
        with single_flight(other, "k", 0) as alone:
            assert not alone
    assert len(told) >= 2
    assert told == sorted(told)
    assert told[-1] < 0.3
    with single_flight(store, "k", 0) as alone:
        assert alone


def test_waiting_ends_as_soon_as_somebody_asks_for_it(store: PlanStore, url: str) -> None:
    with PlanStore.open(url) as other, single_flight(store, "k", 1):
        before = time.monotonic()
        with single_flight(other, "k", 60, should_stop=lambda: True) as alone:
            assert not alone
        assert time.monotonic() - before < 5


def test_other_keys_are_free(store: PlanStore) -> None:
    with single_flight(store, "a", 1), single_flight(store, "b", 0) as alone:
        assert alone


def test_the_store_works_while_a_key_is_held(store: PlanStore) -> None:
    with single_flight(store, "k", 1):
        plan = store.add_plan(plan_record())
        assert store.find_plan(plan.fingerprint) == plan


def test_an_error_inside_frees_the_key_and_passes_unchanged(store: PlanStore) -> None:
    with pytest.raises(ZeroDivisionError), single_flight(store, "k", 1):
        raise ZeroDivisionError
    with single_flight(store, "k", 0) as alone:
        assert alone


def test_threads_with_stores_of_their_own_take_turns(url: str) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with PlanStore.open(url) as store:
            for _ in range(5):
                with single_flight(store, "k", 30) as alone:
                    inside.append(1)
                    most.append(len(inside) if alone else 99)
                    time.sleep(0.002)
                    inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


def test_a_reading_store_holds_nobody_up(sqlite_file) -> None:
    with (
        PlanStore.open(sqlite_file, read_only=True) as store,
        single_flight(store, "k", 0) as alone,
    ):
        assert not alone
        assert _leases(store) == 0


def test_a_lease_is_given_up_at_once(store: PlanStore) -> None:
    with single_flight(store, "'; DROP TABLE leases --", 0):
        assert _leases(store) == 1
    assert _leases(store) == 0


def _leases(store: PlanStore) -> int:
    return store.stats().rows["leases"]


def _age(store: PlanStore, seconds: float) -> None:
    """Puts the last sign of life of all holders back; below zero, into the future."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds)
    store.database.write(lambda c: c.execute(update(LEASES).values(beat_at=moment)) and None)


@pytest.mark.parametrize("seconds", [11, 1e6, -11])
def test_a_holder_without_a_recent_sign_of_life_is_replaced(
    store: PlanStore, url: str, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    with PlanStore.open(url) as other, single_flight(store, "k", 0):
        _age(store, seconds)
        with single_flight(other, "k", 0) as alone:
            assert alone
        assert f"process {os.getpid()} on " in caplog.text
        assert "was silent for 10 s: its request is taken over" in caplog.text
    with single_flight(store, "k", 0) as alone:
        assert alone


@pytest.mark.parametrize("seconds", [5, -5])
def test_a_holder_that_was_heard_of_a_moment_ago_is_left_alone(
    store: PlanStore, url: str, seconds: float
) -> None:
    with PlanStore.open(url) as other, single_flight(store, "k", 0):
        _age(store, seconds)
        with single_flight(other, "k", 0) as alone:
            assert not alone


def test_a_holder_that_was_replaced_leaves_the_lease_to_the_other(
    store: PlanStore, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease_rows, "BEAT_S", 0.05)
    with PlanStore.open(url) as other, ExitStack() as late:
        with single_flight(store, "k", 0):
            monkeypatch.setattr(lease_rows, "LEASE_S", -1)
            late.enter_context(single_flight(other, "k", 0))
            monkeypatch.undo()
            deadline = time.monotonic() + 10
            while "another one has taken" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.02)
            assert "another one has taken its request over" in caplog.text
        assert _leases(store) == 1
        with single_flight(store, "k", 0) as alone:
            assert not alone
    assert _leases(store) == 0


def test_a_lease_is_renewed_while_the_work_goes_on(
    store: PlanStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_rows, "BEAT_S", 0.02)
    with single_flight(store, "k", 0):
        _age(store, 100)
        deadline = time.monotonic() + 10
        while _last_beat(store) < datetime.now(UTC) - timedelta(seconds=50):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _last_beat(store: PlanStore) -> datetime:
    return store.database.read(lambda c: c.execute(select(LEASES.c.beat_at)).scalar_one())


def test_a_database_that_is_lost_in_between_loses_no_answer(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease_rows, "BEAT_S", 0.02)
    caplog.set_level("INFO")
    with PlanStore.open(sqlite_file) as store:
        with single_flight(store, "k", 0) as alone:
            sqlite_file.rename(sqlite_file.with_name("away.db"))
            time.sleep(0.2)
            answer = alone
        assert answer
    assert "a lease could not be renewed" in caplog.text
    assert "a lease could not be given up, it ends in 10 s" in caplog.text


def test_a_negative_time_is_refused(store: PlanStore) -> None:
    with pytest.raises(InputError, match="negative"), single_flight(store, "k", -1):
        pass
