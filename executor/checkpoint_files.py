"""The folders of checkpoints: which is whole, which is newest, what it is of; knows no torch.

    FOLDER/step-00000120/training.json   and the files of torch.distributed.checkpoint
    FOLDER/.partial-step-00000130/       one that is being written, or was when the power failed

A checkpoint gets its name only when all of it is on the disk.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.sampler import Position
from arachne_opt.fields import Fields

TRAINING_FORMAT = "arachne.training/1"
TRAINING_FILE = "training.json"

_NAME = re.compile(r"step-(\d{8,})")
_PARTIAL = ".partial-"
_FIELDS = ("model", "seed", "weight_rule", "sharding", "world_size", "averaged", "plan_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a checkpoint is of.

    Args:
        position: which clips were trained.
        sharding: how the optimizer's state is cut.
        averaged: whether a moving average of the weights is kept.
        plan_ids: plans of the epoch in training, as far as the database has them.
    """

    position: Position
    model: str
    seed: int
    weight_rule: str
    sharding: str
    world_size: int
    averaged: bool
    plan_ids: tuple[str, ...] = ()


def newest(folder: Path) -> Path | None:
    """The whole checkpoint with the most steps; None where there is none."""
    found = _all(folder)
    return found[-1] if found else None


def refuse_begun(folder: Path) -> None:
    """Refuses to begin a training in the folder of another one.

    Raises:
        InputError: the folder has a checkpoint.
    """
    if newest(folder) is not None:
        what = "the folder holds checkpoints of a training"
        raise InputError(what, where=str(folder), hint="--resume, or another folder")


def partial_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is written."""
    return folder / f"{_PARTIAL}{_name(step)}"


def complete(partial: Path, training: Training, keep: int) -> Path:
    """Gives a checkpoint that is all written its name, and removes what is too old.

    Raises:
        OSError: the disk does not take it; no whole checkpoint has changed.
    """
    return publish(partial, {"format": TRAINING_FORMAT, **_to_json(training)}, keep)


def publish(partial: Path, value: dict[str, Any], keep: int) -> Path:
    """The same with any description of the training.

    Raises:
        OSError: the disk does not take it; no whole checkpoint has changed.
    """
    with (partial / TRAINING_FILE).open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    final = partial.with_name(partial.name.removeprefix(_PARTIAL))
    if final.exists():  # of a run that went on from an older checkpoint
        shutil.rmtree(final)
    partial.rename(final)
    _flush_folder(final.parent)
    for old in _all(final.parent)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def remove_partial(folder: Path) -> None:
    """Removes what a run that was broken off has left."""
    for path in folder.glob(f"{_PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def read_training(path: Path) -> Training:
    """What a checkpoint is of.

    Raises:
        InputError: the file is missing, damaged or of another format.
    """
    file = path / TRAINING_FILE
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the checkpoint: {error}", where=str(file)) from error
    top = Fields(value, str(file), ("format", "position", *_FIELDS))
    top.require_format(TRAINING_FORMAT)
    place = Fields(top.raw("position"), top.place("position"), ("step", "epoch", "trained"))
    return Training(
        position=Position(
            step=place.integer("step"),
            epoch=place.integer("epoch"),
            trained=frozenset(map(str, place.items("trained"))),
        ),
        model=top.text("model"),
        seed=top.integer("seed"),
        weight_rule=top.text("weight_rule"),
        sharding=top.text("sharding"),
        world_size=top.integer("world_size"),
        averaged=bool(top.raw("averaged")),
        plan_ids=tuple(map(str, top.items("plan_ids"))),
    )


def make_folder(folder: Path) -> None:
    """Makes the folder of the checkpoints and shows that it can be written.

    Raises:
        RunError: it cannot.
    """
    probe = folder / f"{_PARTIAL}probe-{os.getpid()}"
    try:
        probe.mkdir(parents=True)
        probe.rmdir()
    except OSError as error:
        what = f"cannot write to the folder of the checkpoints: {error.strerror}"
        raise RunError(what, where=str(folder)) from error


def _to_json(training: Training) -> dict[str, Any]:
    value = asdict(training)
    value["position"]["trained"] = sorted(training.position.trained)
    return value


def _all(folder: Path) -> list[Path]:
    """Whole checkpoints by their steps."""
    found = [p for p in folder.glob("step-*") if _NAME.fullmatch(p.name) and p.is_dir()]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]))


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _flush_folder(folder: Path) -> None:
    """Brings a new name to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
