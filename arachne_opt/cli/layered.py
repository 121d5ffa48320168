"""Settings of files as defaults of commands: click asks flags and the environment before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from arachne_opt.errors import InputError
from arachne_opt.settings_files import Setting, SettingsFile, setting
from arachne_opt.suggest import did_you_mean


def defaults_for(
    command: click.Command, path: Sequence[str], files: Sequence[SettingsFile]
) -> dict[str, Any]:
    """What files say of a command and of those below it, in the form of click's default map.

    Raises:
        InputError: a table of the command has a key that no option has, or a value that does not
            fit its option.
    """
    refuse_unknown_keys(command, path, files)
    found: dict[str, Any] = {}
    for option in options_of(command):
        entry = setting(files, path, keys_of(option))
        if entry is not None and option.name is not None:
            found[option.name] = _fitting(option, entry)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            found[name] = defaults_for(inner, (*path, name), files)
    return found


def options_of(command: click.Command) -> Iterator[click.Option]:
    """The options that settings can reach."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_eager:
            yield parameter


def keys_of(option: click.Option) -> tuple[str, ...]:
    """The names of an option in a file: its long names without dashes."""
    return tuple(name[2:] for name in option.opts if name.startswith("--"))


def refuse_unknown_keys(
    command: click.Command, path: Sequence[str], files: Sequence[SettingsFile]
) -> None:
    """Refuses keys in the table of a command that are neither its options nor commands below it."""
    known = _keys_below(command)
    for file in files:
        values: Any = file.values
        for name in path:
            values = values.get(name, {}) if isinstance(values, dict) else {}
        if not isinstance(values, dict) and len(path) == 1:
            continue  # an option of many commands that is named like this one, such as db
        if not isinstance(values, dict):
            what = f"{values!r} stands where the settings of a command belong"
            raise InputError(what, where=f"{file.path}: {'.'.join(path)}", hint="a table")
        for key in values:
            if key not in known:
                what = f"no option of {' '.join(['arachne', *path])}{did_you_mean(key, known)}"
                raise InputError(what, where=f"{file.path}: [{'.'.join(path)}] {key}")


def _keys_below(command: click.Command) -> set[str]:
    """Options of a command and of all below it, and the names of those right below."""
    known = {key for option in options_of(command) for key in keys_of(option)}
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            known |= {name} | {k for option in options_of(inner) for k in keys_of(option)}
    return known


def _fitting(option: click.Option, entry: Setting) -> Any:  # noqa: ANN401
    """The value of a setting, checked as click checks the value of a flag."""
    many = option.multiple or option.nargs != 1
    if many != isinstance(entry.value, list):
        what = "needs a list" if many else f"cannot be {entry.value!r}"
        raise InputError(f"--{entry.key} {what}", where=entry.where)
    try:
        for value in entry.value if many else [entry.value]:
            option.type.convert(value, option, None)
    except click.BadParameter as error:
        raise InputError(error.message, where=entry.where) from error
    return entry.value
