"""One request at a time for a key."""

from __future__ import annotations

import threading
import time

import pytest

from arachne_opt.db.locks import single_flight
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
    assert not sqlite_file.with_name("plans.db.locks").exists()


def test_no_lock_file_is_left(sqlite_file) -> None:
    with PlanStore.open(sqlite_file) as store, single_flight(store, "../../k", 0):
        pass
    assert list(sqlite_file.with_name("plans.db.locks").iterdir()) == []


def test_a_negative_time_is_refused(store: PlanStore) -> None:
    with pytest.raises(InputError, match="negative"), single_flight(store, "k", -1):
        pass
