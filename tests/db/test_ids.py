"""Ids sort by age and are told apart by short prefixes."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from arachne_opt.db.ids import LENGTH, id_range, new_id
from arachne_opt.errors import InputError


def test_ids_are_hex_of_one_length_and_differ() -> None:
    # Six random digits alone would repeat among so many of one tick.
    ids = [new_id() for _ in range(50_000)]
    assert all(len(i) == LENGTH and int(i, 16) >= 0 for i in ids)
    assert len(set(ids)) == len(ids)


def test_ids_of_threads_and_of_forked_processes_differ_too(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if all were made at once.
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    first = new_id()
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(lambda _: [new_id() for _ in range(2000)], range(4)))
    ours = {first, *(i for row in rows for i in row)}
    assert len(ours) == 8001
    with multiprocessing.get_context("fork").Pool(2) as pool:
        theirs = pool.map(_ids, range(2))
    # A child that went on where its parent was would have the next ids of the parent.
    assert not {*theirs[0], *theirs[1]} & {f"{int(max(ours), 16) + k:016x}" for k in range(1, 50)}


def _ids(_number: int) -> list[str]:
    return [new_id() for _ in range(10)]


def test_ids_made_five_milliseconds_apart_sort_by_age_and_differ_in_ten_digits() -> None:
    ids = []
    for _ in range(20):
        ids.append(new_id())
        time.sleep(0.005)
    assert ids == sorted(ids)
    assert len({i[:10] for i in ids}) == 20


def test_a_prefix_means_all_ids_that_start_with_it() -> None:
    assert id_range("6B0c") == ("6b0c000000000000", "6b0cffffffffffff")
    assert id_range("0" * 16) == ("0" * 16, "0" * 16)


@pytest.mark.parametrize("text", ["", "g", "6b0c%", " 6b", "0" * 17, "６"])
def test_what_is_no_prefix_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not an id"):
        id_range(text)
