"""YAML files as nodes that know their lines; needs PyYAML (the extra ``yaml``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.importers.node import Node, Place, read_text


def read_yaml_file(path: str | Path) -> Node:
    """The documents of a YAML file, as a list.

    Raises:
        InputError: no such file, or no YAML.
        MissingDependencyError: PyYAML is not installed.
    """
    text, file = read_text(path), str(path)
    try:
        import yaml
    except ImportError as error:
        what, hint = "reading YAML needs PyYAML", "pip install 'arachne-opt[yaml]'"
        raise MissingDependencyError(what, where=file, hint=hint) from error
    lines: dict[Place, int] = {(): 1}
    try:
        trees = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        values = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else f"{file}:1"
        what = f"no valid YAML: {getattr(error, 'problem', None) or error}"
        hint = "spaces for indentation, and quotes around texts with a colon"
        raise InputError(what, where=where, hint=hint) from error
    for number, tree in enumerate(trees):
        _note(tree, (number,), lines)
    return Node(values, file, lines)


def _note(tree: Any, place: Place, lines: dict[Place, int]) -> None:  # noqa: ANN401 - PyYAML's nodes
    """Notes the line of a tree and of everything below it."""
    if tree is None:
        return
    lines.setdefault(place, tree.start_mark.line + 1)
    if tree.id == "mapping":
        for key, below in tree.value:
            lines[(*place, key.value)] = key.start_mark.line + 1
            _note(below, (*place, key.value), lines)
    elif tree.id == "sequence":
        for number, below in enumerate(tree.value):
            _note(below, (*place, number), lines)
