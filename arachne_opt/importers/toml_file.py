"""TOML files as nodes that know their lines."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.importers.node import Node, Place, read_text

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*\[\[\s*([^\[\]]+?)\s*\]\]\s*(?:#.*)?")
_NAME = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_KEY = re.compile(rf"\s*({_NAME}(?:\s*\.\s*{_NAME})*)\s*=")
_PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([\w-]+)")
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")


def read_toml_file(path: str | Path) -> Node:
    """The tables of a TOML file.

    Raises:
        InputError: no such file, or no TOML.
    """
    return toml_node(read_text(path), str(path))


def toml_node(text: str, file: str) -> Node:
    """The tables of a TOML text."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        what = f"no valid TOML: {_PLACE.sub('', str(error))}"
        hint = 'texts in quotes and lists in brackets, such as path = "clips"'
        raise InputError(what, where=f"{file}:{line}", hint=hint) from error
    return Node(value, file, _lines(text, value))


def _lines(text: str, value: dict[str, Any]) -> dict[Place, int]:
    """Line of every table and key; what only looks like one, inside a list, leads nowhere."""
    found: dict[Place, int] = {(): 1}
    counts: dict[Place, int] = {}
    here: Place = ()
    for number, line in enumerate(text.split("\n"), 1):
        if match := _ENTRY.fullmatch(line):
            key = _below(_parts(match[1]), counts)
            if _leads(value, key):
                counts[key] = counts.get(key, -1) + 1
                here = (*key, counts[key])
                found.setdefault(key, number)
                found[here] = number
        elif match := _TABLE.fullmatch(line):
            key = _below(_parts(match[1]), counts)
            if _leads(value, key):
                here = key
                found.setdefault(here, number)
        elif match := _KEY.match(line):
            key = (*here, *_parts(match[1]))
            if _leads(value, key):
                found.setdefault(key, number)
    return found


def _parts(dotted: str) -> Place:
    return tuple(next(filter(None, m.groups()), "") for m in _PART.finditer(dotted))


def _below(parts: Place, counts: dict[Place, int]) -> Place:
    """A key of a header with the number of the list entry that it belongs to."""
    place: Place = ()
    for part in parts[:-1]:
        place = (*place, part)
        if place in counts:
            place = (*place, counts[place])
    return (*place, *parts[-1:])


def _leads(value: Any, place: Place) -> bool:  # noqa: ANN401 - any value that a file may hold
    for key in place:
        inside = key in value if isinstance(value, dict) else False
        if isinstance(value, list) and isinstance(key, int):
            inside = key < len(value)
        if not inside:
            return False
        value = value[key]
    return True
