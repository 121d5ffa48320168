"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from arachne_opt.settings import DATABASE_VARIABLE
from arachne_opt.solvers.base import MOST_SEED, MOST_WORKERS, Limits

Command = TypeVar("Command", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, writable=True, path_type=Path)
PATH = click.Path(exists=True, path_type=Path)

# Who decides where activations are computed again: everywhere, nowhere, or task by task.
RECOMPUTE = ("always", "never", "planned")


def format_option(command: Command) -> Command:
    """``--format table|json``."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="A table for people or a versioned JSON document.",
    )(command)


def database_option(command: Command) -> Command:
    """``--db URL``."""
    return click.option(
        "--db",
        "db_url",
        metavar="URL",
        envvar=DATABASE_VARIABLE,
        help="Plan database: a file or a SQLAlchemy URL. [env: ARACHNE_DB; default: this user's]",
    )(command)


def limit_options(command: Command) -> Command:
    """``--time-limit --gap --seed --workers --deterministic``."""
    options = [
        click.option(
            "--time-limit",
            "time_limit_s",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            help="Seconds per plan.",
        ),
        click.option(
            "--gap",
            type=click.FloatRange(min=0),
            help="Stop at this proven gap, such as 0.05; exit 4 when it is not reached.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, MOST_SEED),
            default=0,
            show_default=True,
            help="Seed of the search.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1, MOST_WORKERS),
            default=2,
            show_default=True,
            help="Threads of the search.",
        ),
        click.option(
            "--deterministic", is_flag=True, help="Equal input and seed give an equal plan."
        ),
    ]
    return _apply(options, command)


def group_option(command: Command) -> Command:
    """``--group buckets|clips``."""
    return click.option(
        "--group",
        type=click.Choice(["buckets", "clips"]),
        default="buckets",
        show_default=True,
        help="Micro-batches by bucket, or chosen anew for each iteration with their placement.",
    )(command)


def warm_start_option(command: Command) -> Command:
    """``--warm-start ID``."""
    return click.option(
        "--warm-start",
        metavar="ID",
        help="Begin the search with this stored plan, instead of the nearest one.",
    )(command)


def seeds_option(command: Command) -> Command:
    """``--seeds/--no-seeds``."""
    return click.option(
        "--seeds/--no-seeds",
        default=True,
        show_default=True,
        help="Begin the search with what a learned policy says.",
    )(command)


def limits_of(options: dict[str, Any]) -> Limits:
    """The limits that ``limit_options`` read."""
    return Limits(
        time_limit_s=options["time_limit_s"],
        gap=options["gap"] or 0.0,
        seed=options["seed"],
        workers=options["workers"],
        deterministic=options["deterministic"],
    )


def recompute_option(command: Command) -> Command:
    """``--recompute``, alone the same as ``--recompute always``."""
    return click.option(
        "--recompute",
        type=click.Choice(RECOMPUTE),
        is_flag=False,
        flag_value="always",
        help="Keep the inputs of the blocks only and compute their activations again: in every "
        "task, in none, or in those that the plan chooses.",
    )(command)


def text_encoder_option(command: Command) -> Command:
    """``--text-encoder``."""
    return click.option(
        "--text-encoder/--no-text-encoder",
        default=False,
        show_default=True,
        help="Texts are encoded too: a task of its own before denoise.",
    )(command)


def workload_options(command: Command) -> Command:
    """How a manifest becomes iterations."""
    options = [
        click.option("--buckets", type=FILE, help="Bucket table; without it exact shapes group."),
        click.option(
            "--iteration-size",
            type=click.IntRange(min=1),
            default=8,
            show_default=True,
            help="Micro-batches per iteration.",
        ),
        click.option(
            "--batch",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Clips per micro-batch where neither buckets nor a budget decide.",
        ),
        click.option(
            "--max-tokens",
            type=click.IntRange(min=1),
            help="Most video tokens of a micro-batch, instead of buckets.",
        ),
        click.option(
            "--iterations",
            "span",
            metavar="A:B",
            help="Only these iterations, such as 0:4 or 7.",
        ),
        click.option(
            "--drop-refused",
            is_flag=True,
            help="Go on without the clips that fit no bucket; they are listed.",
        ),
        click.option(
            "--fps",
            type=click.FloatRange(min=0, min_open=True),
            help="Train faster clips at this many frames per second.",
        ),
        click.option(
            "--shuffle-seed",
            type=int,
            default=0,
            show_default=True,
            help="Seed of the order in which clips are grouped.",
        ),
    ]
    return _apply(options, command)


def _apply(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
