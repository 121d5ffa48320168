"""Values of files with the lines they stand on, so that every complaint says ``file:line``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean

# Keys of tables and numbers of list entries, from the top of the file.
Place = tuple[str | int, ...]


class Node:
    """A value somewhere in a file.

    Args:
        value: a scalar, a list or a table.
        file: for messages.
        lines: line of each place, counted from 1; a place without a line has that of its parent.
        place: where the value stands.
        unit: what is counted: lines, or rows of files without lines.
        loose: texts stand for the numbers that they spell, as in CSV files.
    """

    __slots__ = ("_lines", "_place", "file", "loose", "unit", "value")

    def __init__(
        self,
        value: Any,  # noqa: ANN401 - any value that a file may hold
        file: str,
        lines: Mapping[Place, int],
        place: Place = (),
        *,
        unit: str = "",
        loose: bool = False,
    ) -> None:
        self.value = value
        self.file = file
        self.unit = unit
        self.loose = loose
        self._lines = lines
        self._place = place

    @property
    def line(self) -> int:
        """The line of the value, or of what holds it."""
        for length in range(len(self._place), -1, -1):
            line = self._lines.get(self._place[:length])
            if line is not None:
                return line
        return 1

    @property
    def where(self) -> str:
        """``file:line``, for messages."""
        return f"{self.file}:{self.unit}{self.line}"

    @property
    def key(self) -> str:
        """The key that the value stands under, empty at the top."""
        return str(self._place[-1]) if self._place else ""

    def error(self, what: str, hint: str | None = None) -> InputError:
        """A complaint about this value."""
        return InputError(what, where=self.where, hint=hint)

    def child(self, key: str | int) -> Node:
        """The value under a key or number that is there."""
        place = (*self._place, key)
        below = self.value[key]
        return Node(below, self.file, self._lines, place, unit=self.unit, loose=self.loose)

    def find(self, *keys: str) -> Node | None:
        """The value under the first of some keys that is there and neither null nor empty."""
        table = self.table()
        for key in keys:
            if table.get(key) not in (None, ""):
                return self.child(key)
        return None

    def get(self, *keys: str) -> Node:
        """The same, of which one must be there."""
        found = self.find(*keys)
        if found is not None:
            return found
        for key in keys:
            if key in self.value:
                raise self.child(key).error(f"{key} is empty")
        names = " or ".join(map(repr, keys))
        near = did_you_mean_by(keys, self.value)
        raise self.error(f"{names} is missing{near}", _found(self.value))

    def names(self) -> list[str]:
        """The keys of a table."""
        return list(self.table())

    def table(self) -> dict[str, Any]:
        """A table."""
        if not isinstance(self.value, dict):
            raise self._wrong("a table of keys")
        return self.value

    def items(self) -> Iterator[Node]:
        """The entries of a list."""
        if not isinstance(self.value, list | tuple):
            raise self._wrong("a list")
        for number in range(len(self.value)):
            yield self.child(number)

    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str):
            raise self._wrong("a text")
        return self.value.strip() if self.loose else self.value

    def flag(self) -> bool:
        """A boolean."""
        if not isinstance(self.value, bool):
            raise self._wrong("true or false")
        return self.value

    def whole(self, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``; 49.0 is one."""
        number = self.number()
        if number != int(number):
            raise self._wrong("a whole number")
        if number < minimum:
            raise self.error(f"{self._name}must be at least {minimum}, not {int(number)}")
        return int(number)

    def number(self) -> float:
        """A finite number that is not negative."""
        value = self.value
        if self.loose and isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self._wrong("a number") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong("a number")
        if not math.isfinite(value) or value < 0:
            raise self._wrong("a finite number >= 0")
        return float(value)

    @property
    def _name(self) -> str:
        return f"{self.key} " if self.key and not self.key.isdigit() else ""

    def _wrong(self, expected: str) -> InputError:
        shown = {dict: "a table", list: "a list", type(None): "nothing"}.get(type(self.value))
        found = shown or repr(self.value)
        return self.error(f"{self._name}must be {expected}, not {found}"[:300])


def read_text(path: str | Path) -> str:
    """The text of a file in UTF-8.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        data = error.object[: error.start]
        where = f"{path}:{data.count(10) + 1}"
        raise InputError("not a text in UTF-8", where=where, hint="saving it as UTF-8") from error
    except OSError as error:
        what = f"cannot read the file: {error.strerror}"
        raise InputError(what, where=str(path)) from error


def did_you_mean_by(wanted: tuple[str, ...], found: object) -> str:
    """A guess which of the keys that are there was meant."""
    if not isinstance(found, dict):
        return ""
    near = [str(key) for key in found if did_you_mean(str(key), wanted)]
    return f" (did you mean {near[0]!r} by it?)" if near else ""


def _found(value: object) -> str | None:
    if not isinstance(value, dict) or not value:
        return None
    return f"adding it; there are {', '.join(map(str, list(value)[:12]))}"
