"""Typed access to tables read from TOML and JSON files; every complaint says where."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean


class Fields:
    """The keys of one table.

    Args:
        value: what the file holds; must be a table.
        where: file and place, for messages.
        known: the keys that the table may have; any other is an error.
    """

    def __init__(self, value: object, where: str, known: Collection[str]) -> None:
        if not isinstance(value, Mapping):
            raise InputError(f"expected a table of keys, found {_kind(value)}", where=where)
        for key in value:
            if key not in known:
                what = f"unknown key {str(key)!r}{did_you_mean(str(key), known)}"
                raise InputError(what, where=where, hint=f"one of {', '.join(sorted(known))}")
        self.where = where
        self._value: Mapping[str, Any] = value

    def __contains__(self, key: str) -> bool:
        return key in self._value

    def place(self, key: str) -> str:
        """Where a key stands, for messages."""
        return f"{self.where}: {key}"

    def raw(self, key: str) -> Any:  # noqa: ANN401 - any value that the file may hold
        """The value of a key that must be there."""
        if key not in self._value:
            raise InputError(f"the key {key!r} is missing", where=self.where)
        return self._value[key]

    def require_format(self, expected: str) -> None:
        """Checks the ``format`` key, which names the kind and version of the file."""
        found = self.raw("format")
        if found != expected:
            raise InputError(f"format is {found!r}, not {expected!r}", where=self.where)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        if default is not None and key not in self._value:
            return default
        found = self.raw(key)
        if not isinstance(found, str):
            raise self._wrong(key, "a string", found)
        return found

    def integer(self, key: str, default: int | None = None, *, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``."""
        if default is not None and key not in self._value:
            return default
        return self._integer(key, self.raw(key), minimum)

    def integers(self, key: str, *, minimum: int = 0) -> tuple[int, ...]:
        """A list of whole numbers, each of at least ``minimum``."""
        return tuple(self._integer(key, item, minimum) for item in self.items(key))

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number that is not negative."""
        if default is not None and key not in self._value:
            return default
        found = self.raw(key)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self._wrong(key, "a number", found)
        if not (math.isfinite(found) and found >= 0):
            raise self._wrong(key, "a finite number >= 0", found)
        return float(found)

    def flag(self, key: str) -> bool:
        """A boolean; False where the key is missing."""
        found = self._value.get(key, False)
        if not isinstance(found, bool):
            raise self._wrong(key, "true or false", found)
        return found

    def items(self, key: str) -> list[Any]:
        """A list; empty where the key is missing."""
        found = self._value.get(key, [])
        if not isinstance(found, list):
            raise self._wrong(key, "a list", found)
        return found

    def quantity(
        self, key: str, parse: Callable[..., int], default: int | None = None, *, minimum: int = 1
    ) -> int:
        """A whole number in the base unit, or a string with a unit that ``parse`` reads."""
        if default is not None and key not in self._value:
            return default
        found = self.raw(key)
        if isinstance(found, str):
            return self._integer(key, parse(found, where=self.place(key)), minimum)
        if isinstance(found, bool) or not isinstance(found, int):
            raise self._wrong(key, "a whole number or a string with a unit", found)
        return self._integer(key, found, minimum)

    def _integer(self, key: str, found: object, minimum: int) -> int:
        if isinstance(found, bool) or not isinstance(found, int):
            raise self._wrong(key, "a whole number", found)
        if found < minimum:
            raise InputError(f"must be at least {minimum}, not {found}", where=self.place(key))
        return found

    def _wrong(self, key: str, expected: str, found: object) -> InputError:
        return InputError(f"expected {expected}, found {_kind(found)}", where=self.place(key))


def _kind(value: object) -> str:
    """A value and its kind, for people."""
    match value:
        case bool():
            return f"the boolean {value!r}"
        case str():
            return f"the text {value!r}"
        case int() | float():
            return f"the number {value!r}"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"
