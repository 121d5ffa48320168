"""Orders of forwards and backwards on one stage: 1F1B, GPipe and interleaved 1F1B.

A *chunk* is a run of consecutive rows that a stage holds; 1F1B and GPipe have one per stage.
Interleaved order after Narayanan et al., Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM, 2021, section 2.2.
"""

from __future__ import annotations

from typing import NamedTuple

from arachne_opt.errors import InputError
from arachne_opt.pipeline.problem import Schedule


class Op(NamedTuple):
    """One forward or backward of one micro-batch through one chunk of a stage."""

    forward: bool
    chunk: int
    microbatch: int


def stage_order(
    schedule: Schedule, stage: int, stages: int, microbatches: int, chunks: int = 1
) -> tuple[Op, ...]:
    """The operations of a stage in the order in which it runs them."""
    match schedule:
        case Schedule.ONE_F_ONE_B:
            return _one_f_one_b(stages - stage - 1, _plain(microbatches))
        case Schedule.GPIPE:
            forwards = tuple(Op(True, 0, m) for m in range(microbatches))
            return forwards + tuple(Op(False, 0, m) for m in range(microbatches))
        case Schedule.INTERLEAVED:
            if microbatches % stages:
                what = f"{microbatches} micro-batches in {stages} interleaved stages"
                raise InputError(what, hint="a multiple of the number of stages, or 1f1b")
            warmup = 2 * (stages - stage - 1) + (chunks - 1) * stages
            return _one_f_one_b(warmup, _rounds(stages, microbatches, chunks))


def peak_in_flight(order: tuple[Op, ...]) -> int:
    """Most micro-batches, counted by chunk, whose activations a stage keeps at once."""
    held = most = 0
    for op in order:
        held += 1 if op.forward else -1
        most = max(most, held)
    return most


def _one_f_one_b(
    warmup: int, lists: tuple[list[tuple[int, int]], list[tuple[int, int]]]
) -> tuple[Op, ...]:
    """Some forwards, then a forward and a backward in turn, then the remaining backwards."""
    forwards, backwards = lists
    warmup = min(warmup, len(forwards))
    order = [Op(True, *f) for f in forwards[:warmup]]
    for f, b in zip(forwards[warmup:], backwards, strict=False):
        order += [Op(True, *f), Op(False, *b)]
    order += [Op(False, *b) for b in backwards[len(forwards) - warmup :]]
    return tuple(order)


def _plain(microbatches: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    both = [(0, m) for m in range(microbatches)]
    return both, both


def _rounds(
    stages: int, microbatches: int, chunks: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Groups of as many micro-batches as stages, chunk by chunk; backwards from the last chunk."""
    forwards, backwards = [], []
    for first in range(0, microbatches, stages):
        for c in range(chunks):
            forwards += [(c, first + m) for m in range(stages)]
            backwards += [(chunks - 1 - c, first + m) for m in range(stages)]
    return forwards, backwards
