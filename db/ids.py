"""Identifiers of rows."""

from __future__ import annotations

import os
import secrets
import threading
import time

from arachne_opt.errors import InputError

LENGTH = 16
_TICKS_PER_S, _TAILS = 256, 1 << 24
_HEX = frozenset("0123456789abcdef")


class _Ids:
    """Ids of this process; those of one tick count up from random digits, so that none repeats."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ticks, self._tail = 0, 0

    def next(self) -> str:
        """The next id."""
        ticks = time.time_ns() * _TICKS_PER_S // 1_000_000_000
        with self._lock:
            again = ticks == self._ticks
            self._tail = (self._tail + 1) % _TAILS if again else secrets.randbelow(_TAILS)
            self._ticks = ticks
            return f"{ticks:010x}{self._tail:06x}"


def _begin_anew() -> None:
    """A forked process would go on with the digits of its parent."""
    global _ids
    _ids = _Ids()


_ids = _Ids()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def new_id() -> str:
    """Sixteen hex digits: ten of time in ticks of 1/256 s since 1970, six that begin at random.

    Time comes first, so that ids sort by age, stay close together in an index and tell plans apart
    by their first ten digits unless they were stored within 4 ms of each other; people may type
    any unique prefix. Six random digits keep ids of the same tick apart, on any number of hosts,
    without asking the database. Ten digits of ticks last until the year 2106.
    """
    return _ids.next()


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
