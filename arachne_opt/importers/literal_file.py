"""Constants in Python configuration files, read without running them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.importers.node import Node, Place, read_text


def read_constant(path: str | Path, name: str) -> Node:
    """The literal that a Python file gives a name at its top level, the last one.

    Raises:
        InputError: no such file, no Python, no such name, or not a literal.
    """
    text, file = read_text(path), str(path)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        what = f"no valid Python: {getattr(error, 'msg', error)}"
        hint = "closing all brackets and quotes"
        raise InputError(what, where=f"{file}:{line}", hint=hint) from error
    found = None
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            found = statement
    if not isinstance(found, ast.Assign):
        hint = "the file that this one inherits from" if "_base_" in text else f"{name} = {{…}}"
        raise InputError(f"the file sets no {name}", where=f"{file}:1", hint=hint)
    lines: dict[Place, int] = {}
    value = _value(found.value, (), lines, file)
    return Node(value, file, lines)


def _value(tree: ast.expr, place: Place, lines: dict[Place, int], file: str) -> Any:  # noqa: ANN401
    lines.setdefault(place, tree.lineno)
    if isinstance(tree, ast.Dict):
        table: dict[Any, Any] = {}
        for key_tree, below in zip(tree.keys, tree.values, strict=True):
            if key_tree is None:
                raise InputError(
                    "** cannot be read", where=f"{file}:{tree.lineno}", hint="plain keys"
                )
            key = str(_scalar(key_tree, file))
            lines[*place, key] = key_tree.lineno
            table[key] = _value(below, (*place, key), lines, file)
        return table
    if isinstance(tree, ast.List | ast.Tuple):
        return [_value(e, (*place, i), lines, file) for i, e in enumerate(tree.elts)]
    return _scalar(tree, file)


def _scalar(tree: ast.expr, file: str) -> Any:  # noqa: ANN401
    try:
        return ast.literal_eval(tree)
    except ValueError as error:
        what = f"{ast.unparse(tree)!r} is computed, not written out"
        raise InputError(what, where=f"{file}:{tree.lineno}", hint="its value") from error
