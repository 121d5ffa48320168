"""Checkpoints of pipeline trainings, which any other plan can take up.

torch.distributed.checkpoint keeps each parameter and its moments as boxes of the whole; a rank of
another plan reads the boxes that overlap its own. Each box is written by one of its holders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.checkpoint_files import (
    make_folder,
    newest,
    partial_path,
    publish,
    remove_partial,
)
from arachne_opt.executor.pipeline.training import PipelineTraining, TrainingPosition
from arachne_opt.fields import Fields
from arachne_opt.pipeline.cells import Box

STATE_FORMAT = "arachne.pipeline-training/1"
STATE_FILE = "training.json"

# Tensors of whole parameters by name: this rank's boxes of each.
Boxes = dict[str, list[tuple[Box, Tensor]]]


def save_checkpoint(training: PipelineTraining, folder: Path, *, keep: int = 3) -> None:
    """Writes a checkpoint; all ranks of the plan call it.

    Raises:
        RunError: the folder cannot be written.
    """
    group = training.seats.group(range(training.layout.world_size))
    first = training.seats.rank == 0
    partial = partial_path(folder, training.position.step)
    if first:
        make_folder(folder)
        remove_partial(folder)
        partial.mkdir()
    _meet(group)
    boxes, shapes = _boxes(training), _shapes(training)
    try:
        save(
            dict.fromkeys(boxes, 0),
            storage_writer=FileSystemWriter(partial),
            planner=_BoxSaver(boxes, shapes),
            process_group=group,
            no_dist=group is None,
        )
    except (OSError, RuntimeError, CheckpointException) as error:
        raise RunError(f"cannot write the checkpoint: {error}", where=str(folder)) from error
    if first:
        publish(partial, _to_json(training), keep)
    _meet(group)


def load_checkpoint(training: PipelineTraining, folder: Path) -> bool:
    """Takes up the newest checkpoint of a folder; False where there is none.

    Raises:
        InputError: it is of another model.
        RunError: it is damaged.
    """
    path = newest(folder)
    if path is None:
        return False
    position, steps = _read_position(training, path)
    group = training.seats.group(range(training.layout.world_size))
    boxes = _boxes(training)
    try:
        load(
            dict.fromkeys(boxes, 0),
            storage_reader=FileSystemReader(path),
            planner=_BoxLoader(boxes),
            process_group=group,
            no_dist=group is None,
        )
    except (OSError, RuntimeError, ValueError, CheckpointException) as error:
        what = f"cannot load the checkpoint: {error}"
        raise RunError(what, where=str(path), hint="the one before") from error
    training.update.steps = steps
    training.update.hand_out()
    training.position = position
    return True


class _BoxSaver(DefaultSavePlanner):
    """Writes boxes of whole tensors."""

    def __init__(self, boxes: Boxes, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__(flatten_state_dict=False)
        self._boxes, self._shapes = boxes, shapes

    def create_local_plan(self) -> SavePlan:
        """An item for each box; the same box on several ranks is written once."""
        self.plan = SavePlan(
            [
                WriteItem(
                    index=MetadataIndex(name, _corner(box)),
                    type=WriteItemType.SHARD,
                    tensor_data=TensorWriteData(
                        chunk=_chunk(box),
                        properties=TensorProperties.create_from_tensor(tensor),
                        size=torch.Size(self._shapes[name]),
                    ),
                )
                for name, own in self._boxes.items()
                for box, tensor in own
            ]
        )
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:  # noqa: ANN401 - torch's own
        """The tensor of a box."""
        return _lookup(self._boxes, index)


class _BoxLoader(DefaultLoadPlanner):
    """Reads boxes out of those that were written."""

    def __init__(self, boxes: Boxes) -> None:
        super().__init__(flatten_state_dict=False)
        self._boxes = boxes

    def create_local_plan(self) -> LoadPlan:
        """What overlaps the boxes of this rank."""
        assert self.metadata is not None  # set up by torch
        items = []
        for name, own in self._boxes.items():
            stored = self.metadata.state_dict_metadata.get(name)
            if not isinstance(stored, TensorStorageMetadata):
                raise ValueError(f"the checkpoint lacks {name}")
            items += create_read_items_for_chunk_list(name, stored, [_chunk(b) for b, _ in own])
        return LoadPlan(items)

    def lookup_tensor(self, index: MetadataIndex) -> Tensor:
        """The tensor of a box."""
        return _lookup(self._boxes, index)


def _boxes(training: PipelineTraining) -> Boxes:
    found: Boxes = {}
    for piece in training.update.pieces():
        for kind, tensor in piece.tensors.items():
            name = f"{piece.key.row}.{piece.key.name}.{kind}"
            found.setdefault(name, []).append((piece.box, tensor.view(piece.shape)))
    return found


def _shapes(training: PipelineTraining) -> dict[str, tuple[int, ...]]:
    return {
        f"{piece.key.row}.{piece.key.name}.{kind}": training.model.shape(piece.key)
        for piece in training.update.pieces()
        for kind in piece.tensors
    }


def _lookup(boxes: Boxes, index: MetadataIndex) -> Tensor:
    return next(t for box, t in boxes[index.fqn] if _corner(box) == index.offset)


def _corner(box: Box) -> torch.Size:
    return torch.Size(begin for begin, _ in box)


def _chunk(box: Box) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=_corner(box), sizes=torch.Size(b - a for a, b in box))


def _to_json(training: PipelineTraining) -> dict[str, Any]:
    return {
        "format": STATE_FORMAT,
        "model": training.spec.name,
        "step": training.position.step,
        "samples": training.position.samples,
        "updates": training.update.steps,
        "seed": training.options.seed,
    }


def _read_position(training: PipelineTraining, path: Path) -> tuple[TrainingPosition, int]:
    file = path / STATE_FILE
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the checkpoint: {error}", where=str(file)) from error
    names = ("format", "model", "step", "samples", "updates", "seed")
    top = Fields(value, str(file), names)
    top.require_format(STATE_FORMAT)
    if top.text("model") != training.spec.name:
        what = f"the checkpoint is of {top.text('model')}, not {training.spec.name}"
        raise InputError(what, where=str(file))
    position = TrainingPosition(step=top.integer("step"), samples=top.integer("samples"))
    return position, top.integer("updates")


def _meet(group: dist.ProcessGroup | None) -> None:
    if group is not None:
        dist.barrier(group)
