"""JSON files and JSON lines as nodes that know their lines."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.importers.node import Node, Place, read_text

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def read_json_file(path: str | Path) -> Node:
    """The value of a JSON file.

    Raises:
        InputError: no such file, or no JSON.
    """
    return json_node(read_text(path), str(path))


def json_node(text: str, file: str) -> Node:
    """The value of a JSON text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        what = f"no valid JSON: {error.msg}, column {error.colno}"
        hint = "closing all brackets and quotes, without a comma before a closing bracket"
        raise InputError(what, where=f"{file}:{error.lineno}", hint=hint) from error
    except RecursionError as error:
        raise InputError("the JSON is nested too deeply", where=f"{file}:1") from error
    return Node(value, file, _Positions(text).found)


def read_json_lines(path: str | Path) -> list[Node | InputError]:
    """The tables of a file with one JSON object a line; a line that is none is an error."""
    rows: list[Node | InputError] = []
    # Not splitlines(): JSON strings may hold other line separators than \n.
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            rows.append(_row(line, str(path), number))
    return rows


def _row(line: str, file: str, number: int) -> Node | InputError:
    where = f"{file}:{number}"
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return InputError(f"no valid JSON: {error}", where=where, hint="one JSON object a line")
    if not isinstance(value, dict):
        return InputError("not a JSON object", where=where, hint="one JSON object a line")
    return Node(value, file, {(): number}, loose=True)


class _Positions:
    """The line of every value of a text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._breaks = [m.start() for m in re.finditer("\n", text)]
        self.found: dict[Place, int] = {}
        self._value(self._skip(0), ())

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return match.end() if match else at

    def _value(self, at: int, place: Place) -> int:
        """Notes a value that begins at a character; the character after it."""
        self.found[place] = bisect_right(self._breaks, at) + 1
        if self._text[at] == "{":
            return self._table(self._skip(at + 1), place)
        if self._text[at] == "[":
            return self._list(self._skip(at + 1), place)
        return _DECODER.raw_decode(self._text, at)[1]

    def _table(self, at: int, place: Place) -> int:
        while self._text[at] != "}":
            start = at
            key, at = _DECODER.raw_decode(self._text, at)
            at = self._value(self._skip(self._skip(at) + 1), (*place, key))
            self.found[*place, key] = bisect_right(self._breaks, start) + 1
            at = self._skip(at)
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _list(self, at: int, place: Place) -> int:
        number = 0
        while self._text[at] != "]":
            at = self._skip(self._value(at, (*place, number)))
            number += 1
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1
