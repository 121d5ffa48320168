"""Identifiers of rows."""

from __future__ import annotations

import secrets
import time

from arachne_opt.errors import InputError

LENGTH = 16
_TICKS_PER_S = 256
_HEX = frozenset("0123456789abcdef")


def new_id() -> str:
    """Sixteen hex digits: ten of time in ticks of 1/256 s since 1970, six at random.

    Time comes first, so that ids sort by age, stay close together in an index and tell plans apart
    by their first ten digits unless they were stored within 4 ms of each other; people may type
    any unique prefix. Six random digits keep ids of the same tick apart, on any number of hosts,
    without asking the database. Ten digits of ticks last until the year 2106.
    """
    ticks = time.time_ns() * _TICKS_PER_S // 1_000_000_000
    return f"{ticks:010x}{secrets.token_hex(3)}"


def is_prefix(text: str) -> bool:
    """Whether some id may begin like this."""
    return 0 < len(text) <= LENGTH and _HEX.issuperset(text.lower())


def id_range(prefix: str) -> tuple[str, str]:
    """The first and the last id that a prefix may mean.

    Raises:
        InputError: it is no prefix of any id.
    """
    text = prefix.lower()
    if not is_prefix(text):
        what = f"{prefix!r} is not an id: ids are up to {LENGTH} digits 0-9 and a-f"
        raise InputError(what, hint="an id from `arachne plans list`")
    return text.ljust(LENGTH, "0"), text.ljust(LENGTH, "f")
