"""Ids sort by age and are told apart by short prefixes."""

from __future__ import annotations

import time

import pytest

from arachne_opt.db.ids import LENGTH, id_range, new_id
from arachne_opt.errors import InputError


def test_ids_are_hex_of_one_length_and_differ() -> None:
    ids = [new_id() for _ in range(1000)]
    assert all(len(i) == LENGTH and int(i, 16) >= 0 for i in ids)
    assert len(set(ids)) == 1000


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
