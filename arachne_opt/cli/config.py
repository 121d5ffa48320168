"""``arachne config``: settings in force, and where each of them comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from arachne_opt.cli.layered import defaults_for, keys_of, options_of
from arachne_opt.cli.options import format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.errors import InputError
from arachne_opt.settings_files import SettingsFile, project_file, read_settings, setting, user_file
from arachne_opt.suggest import did_you_mean

_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """One option of one command with the value that it has unless a flag says otherwise."""

    command: str
    option: str
    value: Any
    origin: str
    changed: bool


@click.group()
def config() -> None:
    """Show settings and where they come from.

    Defaults, then the user's file, then the project's arachne.toml, then the environment; flags
    overrule them all.
    """


@config.command()
@click.option("--origin", is_flag=True, help="Say where every value comes from.")
@click.option("--all", "everything", is_flag=True, help="Defaults too.")
@format_option
@click.pass_context
def show(ctx: click.Context, origin: bool, everything: bool, form: str) -> None:
    """Check all settings and show those that differ from the defaults.

    Example: arachne config show --origin
    """
    rows = [r for r in in_force(ctx.find_root(), read_settings()) if r.changed or everything]
    if form == "json":
        emit_json("config", {"settings": [_json(row) for row in rows]})
        return
    if not rows:
        click.echo("all defaults; see arachne config path", err=True)
        return
    head = ["command", "option", "value"] + (["origin"] if origin else [])
    emit_table(head, [cells[: len(head)] for cells in _grouped(rows)])


@config.command()
@format_option
def path(form: str) -> None:
    """The files of settings, the weakest first, and whether they are there.

    Example: arachne config path
    """
    from pathlib import Path

    files = {file.path: file.layer for file in read_settings()}
    wanted = {user_file(): "user"}
    wanted[project_file(Path.cwd()) or Path.cwd() / "arachne.toml"] = "project"
    rows = [
        (layer, str(file), "read" if file in files else "not there" if not file.is_file() else "-")
        for file, layer in {**wanted, **files}.items()
    ]
    if form == "json":
        emit_json("config-path", {"files": [dict(zip(_FILE, row, strict=True)) for row in rows]})
        return
    emit_table(_FILE, rows)


# So many commands are named on one line.
_FEW = 3
_FILE = ("layer", "file", "state")


def in_force(root: click.Context, files: tuple[SettingsFile, ...]) -> list[InForce]:
    """Every option of every command.

    Raises:
        InputError: a file has a key or a value that no option takes.
    """
    group = root.command
    assert isinstance(group, click.Group)
    rows: list[InForce] = []
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        assert command is not None
        defaults_for(command, (name,), files)
        rows += _of_command(command, (name,), files)
    _refuse_unknown(files, {row.option[2:] for row in rows})
    return rows


def _refuse_unknown(files: tuple[SettingsFile, ...], known: set[str]) -> None:
    """Refuses keys at the top of a file that no command has."""
    for file in files:
        for key, value in file.values.items():
            if not isinstance(value, dict) and key not in known:
                what = f"no command has this option{did_you_mean(key, known)}"
                raise InputError(what, where=f"{file.path}: {key}")


def _of_command(
    command: click.Command, path: tuple[str, ...], files: tuple[SettingsFile, ...]
) -> Iterator[InForce]:
    for option in options_of(command):
        if keys_of(option):
            yield _in_force(option, path, files)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _of_command(inner, (*path, name), files)


def _in_force(
    option: click.Option, path: tuple[str, ...], files: tuple[SettingsFile, ...]
) -> InForce:
    found = setting(files, path, keys_of(option))
    variable = _variable(option, path)
    value: Any
    if variable is not None:
        value, origin = os.environ[variable], f"environment: {variable}"
    elif found is not None:
        value, origin = found.value, f"{found.file.layer}: {found.where}"
    else:
        value, origin = option.to_info_dict()["default"], "default"
    key = keys_of(option)[0]
    return InForce(
        command=" ".join(path),
        option=f"--{key}",
        value=_PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value,
        origin=origin,
        changed=origin != "default",
    )


def _variable(option: click.Option, path: tuple[str, ...]) -> str | None:
    """The variable of the environment that sets an option."""
    own = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    automatic = "_".join(["ARACHNE", *path, option.name or ""]).upper().replace("-", "_")
    return next((name for name in [*own, automatic] if os.environ.get(name)), None)


def _grouped(rows: list[InForce]) -> Iterator[list[str | None]]:
    """A line per value; commands that have it from the same place share one."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        groups.setdefault((row.option, str(row.value), row.origin), []).append(row.command)
    for (option, value, origin), commands in groups.items():
        few = len(commands) <= _FEW
        named = ", ".join(commands) if few else f"{len(commands)} commands"
        yield [named, option, value, origin]


def _json(row: InForce) -> dict[str, Any]:
    value = row.value if isinstance(row.value, str | int | float | bool | list | None) else None
    return {"command": row.command, "option": row.option, "value": value, "origin": row.origin}
