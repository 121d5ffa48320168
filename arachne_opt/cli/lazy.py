"""Commands that are imported when they are called, so that ``--help`` is instant."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from arachne_opt.cli.layered import defaults_for


class LazyGroup(click.Group):
    """A group whose commands live in modules named by a table.

    The files of settings in its context become defaults of the command that is called.

    Args:
        table: command name -> (``module:attribute``, the line shown in the help).
    """

    def __init__(self, *, table: Mapping[str, tuple[str, str]], **attributes: Any) -> None:  # noqa: ANN401
        # Light stand-ins let click list the names and suggest one for a misspelt command.
        stand_ins = {n: click.Command(n, short_help=text) for n, (_, text) in table.items()}
        super().__init__(commands=stand_ins, **attributes)
        self._table = dict(table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The real command, imported now."""
        if cmd_name not in self._table:
            return None
        module, _, attribute = self._table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        files = ctx.obj if isinstance(ctx.obj, tuple) else ()
        if files:
            defaults = defaults_for(command, (cmd_name,), files)
            ctx.default_map = {**(ctx.default_map or {}), cmd_name: defaults}
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
