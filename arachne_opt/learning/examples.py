"""Files of examples: one JSON line each, only ever appended to, so that a run can be resumed.

A line that a dying process left half written is dropped when the file is opened again; its
example is then made anew.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from arachne_opt.errors import InputError

EXAMPLES_FORMAT = "arachne.examples/1"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What all examples of a file have in common; another recipe needs another file.

    Args:
        policy: ``cascades`` or ``templates``.
        world: name of the world that the problems are drawn from.
        units: deterministic units of work, about seconds, of each search.
        features: version of the features that ``priced`` counts in.
        searched: problems below this number are searched as a whole; for the others templates are
            priced only.
    """

    policy: str
    world: str
    units: float
    features: int
    searched: int

    def __post_init__(self) -> None:
        if not 0 < self.units < math.inf:
            raise InputError(f"work is a number above 0, not {self.units}", where="--units")

    def to_json(self) -> Json:
        """The first line of a file."""
        return {
            "format": EXAMPLES_FORMAT,
            "policy": self.policy,
            "world": self.world,
            "units": self.units,
            "features": self.features,
            "searched": self.searched,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A problem of a world by its number, with the best plan that is known.

    Args:
        plan: in the exported form, None where the problem has none or was not searched.
        objective_us: what the plan takes.
        bound_us: a proven lower bound, 0 for none.
        priced: other answers that were tried, as rows of numbers: cells of templates with their
            seconds, None for what fits nowhere.
    """

    number: int
    plan: Json | None
    objective_us: int
    bound_us: int
    priced: Sequence[Sequence[float | None]] = ()

    def to_json(self) -> Json:
        """A line of a file."""
        return {
            "number": self.number,
            "plan": self.plan,
            "objective_us": self.objective_us,
            "bound_us": self.bound_us,
            "priced": self.priced,
        }


@dataclass
class ExampleFile:
    """A file of examples, open to be appended to; use it as a context manager."""

    path: Path
    recipe: Recipe
    done: dict[int, Example] = field(default_factory=dict)

    def __enter__(self) -> Self:
        """Opens the file, made where it is missing, and drops a half-written last line."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
            whole = _whole_bytes(self.path)
            self._file.truncate(whole)
            if whole == 0:
                self._write(self.recipe.to_json())
        except OSError as error:
            raise InputError(f"cannot write: {error.strerror}", where=str(self.path)) from error
        found, examples = read_examples(self.path)
        if found != self.recipe:
            self._file.close()
            what = f"holds examples of {found}, not of {self.recipe}"
            raise InputError(what, where=str(self.path), hint="another --examples")
        self.done = {example.number: example for example in examples}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes the file."""
        self._file.close()

    def add(self, example: Example) -> None:
        """Appends an example; once this returns, it is on the disk."""
        if example.number not in self.done:
            self._write(example.to_json())
            self.done[example.number] = example

    def _write(self, value: Json) -> None:
        # One write of a whole line: readers never see a part of it but at the end of the file.
        self._file.write((json.dumps(value, separators=(",", ":")) + "\n").encode())
        self._file.flush()
        os.fsync(self._file.fileno())


def read_examples(path: Path) -> tuple[Recipe, tuple[Example, ...]]:
    """The recipe and the examples of a file, by number.

    Raises:
        InputError: it cannot be read, or a line is not what it should be; names the line.
    """
    lines = _lines(path)
    head = next(lines, None)
    if not isinstance(head, dict) or head.get("format") != EXAMPLES_FORMAT:
        raise InputError(f"is no file of {EXAMPLES_FORMAT!r}", where=str(path))
    try:
        recipe = Recipe(**{key: value for key, value in head.items() if key != "format"})
    except TypeError as error:
        raise InputError(f"the first line is no recipe: {error}", where=str(path)) from error
    found = {}
    for number, value in enumerate(lines, start=2):
        try:
            example = Example(**value)
        except TypeError as error:
            raise InputError(f"is no example: {error}", where=f"{path}, line {number}") from error
        found[example.number] = example
    return recipe, tuple(found[n] for n in sorted(found))


def _lines(path: Path) -> Iterator[Any]:
    try:
        text = path.read_bytes()[: _whole_bytes(path)].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read: {error}", where=str(path)) from error
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InputError(f"is no JSON: {error}", where=f"{path}, line {number}") from error


def _whole_bytes(path: Path) -> int:
    """Bytes up to the end of the last whole line."""
    return path.read_bytes().rfind(b"\n") + 1
