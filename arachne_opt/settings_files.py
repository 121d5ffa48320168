"""Layers of settings: a user's file, then the project's; flags and the environment overrule both.

A file is TOML. Keys are long options without dashes; tables are commands::

    db = "postgresql://planner@pool/plans"   # every command that has --db

    [solve]
    time-limit = 20                          # all commands under solve

    [solve.cascade]
    workers = 8                              # this one
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean

FILE_NAME = "arachne.toml"
# Names one file in place of both; empty for none.
CONFIG_VARIABLE = "ARACHNE_CONFIG"
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What one file says.

    Args:
        layer: ``user``, ``project`` or ``named``.
    """

    layer: str
    path: Path
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Setting:
    """A value with its table and its file."""

    value: Any
    table: tuple[str, ...]
    key: str
    file: SettingsFile

    @property
    def where(self) -> str:
        """The place in words: file, table and key."""
        table = f"[{'.'.join(self.table)}] " if self.table else ""
        return f"{self.file.path}: {table}{self.key}"


def user_file() -> Path:
    """This user's file, after the XDG base directory specification."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification tells programs to ignore a relative path.
    folder = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return folder / "arachne" / FILE_NAME


def project_file(start: Path) -> Path | None:
    """The nearest file in a folder or above it, up to the root of a repository."""
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
        if (folder / ".git").exists():
            return None
    return None


def read_settings(start: Path | None = None) -> tuple[SettingsFile, ...]:
    """All files that there are, the weakest first.

    Args:
        start: where the search for the project's file begins; the working folder by default.

    Raises:
        InputError: a file cannot be read or is no TOML, or the file that is named is missing.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    if named is not None:
        return (_read("named", Path(named)),) if named else ()
    found = []
    if user_file().is_file():
        found.append(_read("user", user_file()))
    project = project_file((start or Path.cwd()).absolute())
    if project is not None and project != user_file():
        found.append(_read("project", project))
    return tuple(found)


def setting(
    files: Sequence[SettingsFile], command: Sequence[str], keys: Sequence[str]
) -> Setting | None:
    """What the strongest file says of an option: its own table first, then those around it."""
    for file in reversed(files):
        for depth in range(len(command), -1, -1):
            table = tuple(command[:depth])
            values = _table(file.values, table)
            for key in keys:
                if key in values and not isinstance(values[key], dict):
                    return Setting(values[key], table, key, file)
    return None


def refuse_unknown_tables(files: Sequence[SettingsFile], commands: Collection[str]) -> None:
    """Refuses tables that are named after no command.

    Raises:
        InputError: names the table and the command that was meant.
    """
    for file in files:
        for name, value in file.values.items():
            if isinstance(value, dict) and name not in commands:
                what = f"no command has this name{did_you_mean(name, commands)}"
                raise InputError(what, where=f"{file.path}: [{name}]")


def _table(values: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    for name in path:
        inner = values.get(name)
        if not isinstance(inner, dict):
            return {}
        values = inner
    return values


def _read(layer: str, path: Path) -> SettingsFile:
    hint = f"{CONFIG_VARIABLE}= to go on without" if layer == "named" else None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot read these settings: {getattr(error, 'strerror', None) or error}"
        raise InputError(what, where=str(path), hint=hint) from error
    try:
        return SettingsFile(layer, path, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.search(str(error))
        line = int(found[1]) if found and found[1] else text.count("\n") + 1
        what = f"no valid TOML: {_PLACE.sub('', str(error))}"
        raise InputError(what, where=f"{path}:{line}", hint="quotes around texts") from error
