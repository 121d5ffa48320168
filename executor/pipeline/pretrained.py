"""Begins a training with a Hugging Face checkpoint, and leaves one behind."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.pipeline.models.checkpoints import CheckpointReader, CheckpointWriter
from arachne_opt.executor.pipeline.models.config_json import config_of_spec
from arachne_opt.executor.pipeline.training import PipelineTraining
from arachne_opt.executor.pipeline.update import Piece


def load_pretrained(training: PipelineTraining, folder: str | Path) -> None:
    """Replaces the random weights; each rank reads the rows of which it has a part.

    Raises:
        InputError: the checkpoint lacks a tensor, or is of another model.
    """
    with CheckpointReader(folder, training.spec) as reader:
        for row, pieces in groupby(_by_row(training), key=lambda piece: piece.key.row):
            weights = reader.row(row)
            for piece in pieces:
                whole = weights[piece.key.name]
                piece.tensors["value"].copy_(whole[_slices(piece)].flatten())
    training.update.hand_out()


def save_pretrained(training: PipelineTraining, folder: str | Path) -> None:
    """Writes the weights for transformers, row by row; all ranks of the plan call it.

    Raises:
        RunError: the folder cannot be written.
    """
    spec, rank = training.spec, training.seats.rank
    assert rank is not None  # called by ranks of the plan
    group = training.seats.group(range(training.layout.world_size))
    writer = CheckpointWriter(folder, spec)
    mine = {row: list(pieces) for row, pieces in groupby(_by_row(training), lambda p: p.key.row)}
    for row, parameters in enumerate(training.model.rows):
        writing = training.layout.holders(row)[0][0]
        weights: dict[str, Tensor] = {}
        for parameter in parameters:
            whole = torch.zeros(parameter.shape)
            for piece in mine.get(row, ()):
                if piece.first and piece.key.name == parameter.name:
                    whole[_slices(piece)] = piece.tensors["value"].view(piece.shape).cpu()
            if group is not None:
                dist.reduce(whole, training.seats.seats[writing], group=group)
            weights[parameter.name] = whole
        if rank == writing:
            writer.write_row(row, weights)
    if group is not None:
        dist.barrier(group)
    if rank == 0:
        config = config_of_spec(spec, sequence_length=training.samples.length)
        writer.finish(config)


def _by_row(training: PipelineTraining) -> Iterator[Piece]:
    yield from sorted(training.update.pieces(), key=lambda piece: piece.key.row)


def _slices(piece: Piece) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in piece.box)
