"""Keeps a training with torch.distributed.checkpoint, beside the training, and takes it up again.

The state is copied at once and written by threads while the next steps run; a checkpoint gets its
name when all ranks have written their part. One that cannot be written is reported and left; the
training goes on, and the ones before stay as they are.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.checkpoint_files import (
    Training,
    complete,
    make_folder,
    newest,
    partial_path,
    read_training,
    remove_partial,
)
from arachne_opt.executor.options import CheckpointOptions
from arachne_opt.executor.update import Update

# What torch's writer says when the disk takes only a part of a file.
_CUT = "inline_container"

# Plans do not predict how long a disk takes.
WRITING_LIMIT_S = 3600.0

_log = logging.getLogger(__name__)


class Checkpoints:
    """A rank's share of writing and reading checkpoints.

    Args:
        options: where and how many.
        update: gives the state.

    Raises:
        RunError: the folder cannot be written.
    """

    def __init__(self, options: CheckpointOptions, update: Update) -> None:
        self._options, self._update = options, update
        self._folder = Path(options.folder)
        self._rank = dist.get_rank()
        # Threads talk over it while the training talks over others.
        timeout = timedelta(seconds=WRITING_LIMIT_S)
        self._group = dist.new_group(backend="gloo", timeout=timeout)
        self._pending: tuple[Future[Any], Path, Training] | None = None
        self.failures: list[str] = []
        if self._rank == 0:
            make_folder(self._folder)
            remove_partial(self._folder)
        dist.barrier(self._group)

    def save(self, training: Training) -> None:
        """Begins to write a checkpoint; waits only where the one before is not done yet."""
        self.finish()
        partial = partial_path(self._folder, training.position.step)
        if self._rank == 0:
            self._make(partial)
        dist.barrier(self._group)
        saving: Any = async_save(
            self._update.state(),
            storage_writer=FileSystemWriter(partial),
            process_group=self._group,
        )
        self._pending = saving, partial, training

    def finish(self) -> None:
        """Waits for the checkpoint that is being written and gives it its name."""
        if self._pending is None:
            return
        (saving, partial, training), self._pending = self._pending, None
        try:
            saving.result()
            if self._rank == 0:
                complete(partial, training, self._options.keep)
        except (OSError, RuntimeError, CheckpointException) as error:
            self._give_up(partial, error)

    def poll(self) -> None:
        """Gives a checkpoint its name as soon as it is written; never waits."""
        if self._pending is not None and self._pending[0].done():
            self.finish()

    def load(self) -> Training | None:
        """Takes up the newest checkpoint; None where there is none.

        Raises:
            InputError: the checkpoint is of another model or another sharding.
            RunError: it is damaged.
        """
        choice = [newest(self._folder) if self._rank == 0 else None]
        dist.broadcast_object_list(choice, group=self._group)
        path = choice[0]
        if path is None:
            return None
        training = read_training(path)
        state = self._update.state()
        self._refuse_other(training, path)
        try:
            load(state, storage_reader=FileSystemReader(path), process_group=self._group)
        except (OSError, RuntimeError, ValueError, CheckpointException) as error:
            what = f"cannot load the checkpoint: {_cause(error)}"
            hint = f"the one before, by removing {path.name}"
            raise RunError(what, where=str(path), hint=hint) from error
        self._update.loaded()
        return training

    def _refuse_other(self, training: Training, path: Path) -> None:
        options = self._update.options
        flat = ("replicated", "zero1")
        if training.sharding != options.sharding and not (
            training.sharding in flat and options.sharding in flat
        ):
            what = f"the checkpoint is of the sharding {training.sharding}, not {options.sharding}"
            raise InputError(what, where=str(path), hint=f"--sharding {training.sharding}")
        if self._update.ema is not None and not training.averaged:
            what = "the checkpoint has no moving average of the weights"
            raise InputError(what, where=str(path), hint="--ema 0")

    def _make(self, partial: Path) -> None:
        try:
            remove_partial(self._folder)
            partial.mkdir(parents=True)
        except OSError as error:  # the write that follows fails, too, and says so on all ranks
            _log.warning("cannot make %s: %s", partial, error)

    def _give_up(self, partial: Path, error: BaseException) -> None:
        text = f"checkpoint of {partial.name.partition('-')[2]} not kept: {_cause(error)}"
        self.failures.append(text)
        if self._rank == 0:
            _log.warning("%s", text)
            remove_partial(self._folder)


def _cause(error: BaseException) -> str:
    """The first failure of any rank in a few words."""
    if isinstance(error, CheckpointException):
        rank, (failure, _) = min(error.failures.items())
        text = str(failure) or type(failure).__name__
        if _CUT in text:
            text = "a file could not be written to its end; is the disk full?"
        return f"rank {rank}: {text}"
    return str(error) or type(error).__name__
