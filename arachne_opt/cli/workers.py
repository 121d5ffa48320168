"""Options that say who works on many independent problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from arachne_opt.learning.jobs import Workers

Command = TypeVar("Command", bound=Callable[..., Any])


def workers_options(command: Command) -> Command:
    """``--jobs N | --dask ADDRESS``."""
    command = click.option(
        "--dask",
        metavar="ADDRESS",
        help="Work on a Dask cluster, such as tcp://head:8786 (extra cluster).",
    )(command)
    return click.option(
        "--jobs",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Processes that work at the same time.",
    )(command)


def workers_of(options: dict[str, Any]) -> Workers:
    """What ``workers_options`` read."""
    from arachne_opt.learning.jobs import Workers

    return Workers(jobs=options["jobs"], dask=options["dask"])
