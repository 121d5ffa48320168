"""Writes tables as TOML: the part of the language that our files need."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def toml_text(value: Mapping[str, Any], *, head: Sequence[str] = ()) -> str:
    """A TOML document: plain keys first, then tables, then lists of tables.

    Args:
        value: texts, numbers, booleans, lists of them, and tables.
        head: comment lines for the beginning.
    """
    lines = [f"# {line}".rstrip() for line in head]
    plain = _plain(value)
    lines += ["", *plain] if head and plain else plain
    for key, below in value.items():
        if isinstance(below, Mapping):
            lines += ["", f"[{key}]", *_plain(below)]
        elif _is_tables(below):
            for entry in below:
                lines += ["", f"[[{key}]]", *_plain(entry)]
    return "\n".join(lines).lstrip("\n") + "\n"


def _plain(value: Mapping[str, Any]) -> list[str]:
    """Keys of one table; a table inside is written on one line below the top."""
    return [
        f"{key} = {_scalar(below)}"
        for key, below in value.items()
        if not isinstance(below, Mapping) and not _is_tables(below)
    ]


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Inline):
        inside = ", ".join(f"{key} = {_scalar(below)}" for key, below in value.items.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, str):
        # Texts of JSON are texts of TOML, but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


class Inline:
    """A table that is written on one line, beside the other keys of its table."""

    __slots__ = ("items",)

    def __init__(self, items: Mapping[str, Any]) -> None:
        self.items = dict(items)
