"""Options of ``arachne train`` beyond the plans: updates, checkpoints, and help beside the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from arachne_opt.errors import InputError
from arachne_opt.workload import Iteration

if TYPE_CHECKING:
    from arachne_opt.executor.options import CheckpointOptions, UpdateOptions
    from arachne_opt.executor.report import IterationReport
    from arachne_opt.executor.sampler import Position

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--sharding",
        type=click.Choice(["replicated", "zero1", "fsdp2"]),
        default="zero1",
        show_default=True,
        help="Who keeps the optimizer's state, and with fsdp2 the weights.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["fp32", "bf16"]),
        default="fp32",
        show_default=True,
        help="Of the transformer's work; weights and sums stay in fp32.",
    ),
    click.option(
        "--schedule",
        type=click.Choice(["constant", "cosine"]),
        default="constant",
        show_default=True,
        help="Course of the learning rate after the warm-up.",
    ),
    click.option("--warmup", type=click.IntRange(min=0), default=0, help="Steps of warm-up."),
    click.option(
        "--clip-norm", type=click.FloatRange(min=0), default=0.0, help="Largest gradient norm."
    ),
    click.option(
        "--ema",
        type=click.FloatRange(min=0, max=1, max_open=True),
        default=0.0,
        help="Decay of a moving average of the weights, such as 0.999.",
    ),
    click.option(
        "--checkpoint-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder in which the training is kept, on a disk that all ranks share.",
    ),
    click.option(
        "--checkpoint-every",
        type=click.IntRange(min=1),
        help="Steps from one checkpoint to the next; else one at the end.",
    ),
    click.option(
        "--keep-checkpoints",
        type=click.IntRange(min=1),
        default=2,
        show_default=True,
        help="Checkpoints to keep, the newest.",
    ),
    click.option("--resume", is_flag=True, help="Go on from the newest checkpoint, if any."),
    click.option(
        "--max-restarts",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Start all ranks again after one failed, from the newest checkpoint.",
    ),
    click.option(
        "--plan-ahead",
        is_flag=True,
        help="Begin at once with quick plans; better ones are made while it trains.",
    ),
    click.option(
        "--replan-above",
        type=click.FloatRange(min=0, min_open=True),
        metavar="ERROR",
        help="Correct the costs and plan anew when tasks are off by more, such as 0.25.",
    ),
    click.option(
        "--tensorboard",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder in which TensorBoard finds the figures of every step.",
    ),
    click.option(
        "--allow-left-out",
        is_flag=True,
        help="Exit with 0, not 2, when clips were left out because of their files.",
    ),
)


@contextmanager
def step_log(folder: Path | None, world_size: int) -> Iterator[Callable[[IterationReport], None]]:
    """What is told of each step: TensorBoard where a folder is given, else nobody."""
    if folder is None:
        yield lambda _report: None
        return
    from arachne_opt.executor.tensorboard import TensorBoardLog

    with TensorBoardLog(folder, world_size) as log:
        yield log


def training_options(command: Command) -> Command:
    """All options of this module."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def update_options(options: dict[str, Any]) -> UpdateOptions:
    """How the weights are updated."""
    from arachne_opt.executor.options import UpdateOptions

    return UpdateOptions(
        sharding=options["sharding"],
        precision=options["precision"],
        schedule=options["schedule"],
        warmup_steps=options["warmup"],
        clip_norm=options["clip_norm"],
        ema_decay=options["ema"],
    )


def checkpoint_options(options: dict[str, Any]) -> CheckpointOptions:
    """Where the training is kept."""
    from arachne_opt.executor.options import CheckpointOptions

    folder = options["checkpoint_dir"]
    if options["max_restarts"] and not folder:
        what = "restarted ranks need a checkpoint to go on from"
        raise InputError(what, hint="--checkpoint-dir FOLDER --checkpoint-every N")
    return CheckpointOptions(
        folder=str(folder.resolve()) if folder else "",
        every=options["checkpoint_every"] or 0,
        keep=options["keep_checkpoints"],
        resume=options["resume"],
    )


def resume_position(options: dict[str, Any]) -> Position | None:
    """Where the training goes on; None where it begins.

    Raises:
        InputError: the checkpoint cannot be read, or a training begins in the folder of another.
    """
    from arachne_opt.executor.checkpoint_files import newest, read_training, refuse_begun

    folder = options["checkpoint_dir"]
    if folder is None:
        return None
    if not options["resume"]:
        refuse_begun(folder)
        return None
    path = newest(folder)
    if path is None:
        click.echo(f"no checkpoint in {folder}: the training begins", err=True)
        return None
    position = read_training(path).position
    what = f"{position.step} steps, {position.epoch} epochs and {len(position.trained)} clips"
    click.echo(f"going on from {path.name}: {what} are done", err=True)
    return position


def opening_of(iterations: Sequence[Iteration], position: Position | None) -> tuple[Iteration, ...]:
    """The rest of a begun epoch where it is cut otherwise than the others; else empty."""
    from arachne_opt.executor.sampler import unfinished

    if position is None or not position.trained:
        return ()
    rest = unfinished(iterations, position.trained)
    whole = {iteration.name: iteration for iteration in iterations}
    if all(iteration == whole[iteration.name] for iteration in rest):
        return ()
    return rest


def note_failures(notes: Sequence[str]) -> None:
    """Prints what the user should know about a run."""
    for note in notes:
        click.echo(f"note: {note}", err=True)
