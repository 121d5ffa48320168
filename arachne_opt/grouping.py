"""Groups clips of equal shape into micro-batches, and micro-batches into iterations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arachne_opt.buckets import Bucket, BucketTable
from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape, Workload

_SHOWN_REFUSALS = 3

Assign = Callable[[Shape], Bucket | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A clip that is not trained, and why."""

    clip_id: str
    shape: Shape
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A workload, with what became of the clips on the way.

    Args:
        refused: clips that fit nowhere; they are not part of the workload.
        shortened: clips trained with fewer frames than they have.
        resized: clips trained at another height or width.
    """

    workload: Workload
    refused: tuple[Refusal, ...]
    shortened: int
    resized: int


def group_clips(
    clips: Sequence[Clip],
    *,
    iteration_size: int,
    buckets: BucketTable | None = None,
    model: ModelSpec | None = None,
    max_tokens: int | None = None,
    batch: int = 1,
    seed: int | None = 0,
    name: str = "workload",
) -> Grouping:
    """The workload of some clips; none is lost: what fits nowhere is returned as refused.

    The clips are shuffled and dealt to their shapes; a micro-batch closes when it is full. What is
    left at the end makes smaller micro-batches, which are kept, and so is a last shorter
    iteration. The micro-batches are shuffled too, so that the small ones spread.

    Args:
        clips: clips of a manifest.
        iteration_size: micro-batches (cascades) of an iteration.
        buckets: shapes and micro-batch sizes; without a table each clip keeps its own shape.
        model: rounds shapes down to what it takes (frames to 4 n + 1, sizes to whole tokens).
        max_tokens: most video tokens of a micro-batch, instead of a table; needs a model.
        batch: clips of a micro-batch where neither a table nor a budget decides.
        seed: equal clips and seed give an equal workload; None keeps the order of the clips.
        name: name of the workload.

    Raises:
        InputError: the arguments contradict each other, or every clip is refused.
    """
    _check(clips, iteration_size, batch)
    assign = _assignment(buckets, model, max_tokens, batch)
    rng = random.Random(seed)
    order = list(clips)
    if seed is not None:
        rng.shuffle(order)
    full, refused = _fill(order, assign)
    if not full:
        reasons = "; ".join(f"{r.clip_id}: {r.reason}" for r in refused[:_SHOWN_REFUSALS])
        raise InputError(f"all {len(refused)} clips are refused: {reasons}", where=name)
    if seed is not None:
        rng.shuffle(full)
    kept = [(clip.shape, shape) for shape, members in full for clip in members]
    return Grouping(
        workload=Workload(name=name, iterations=_iterations(full, iteration_size)),
        refused=tuple(refused),
        shortened=sum(new.frames != old.frames for old, new in kept),
        resized=sum((new.height, new.width) != (old.height, old.width) for old, new in kept),
    )


def _check(clips: Sequence[Clip], iteration_size: int, batch: int) -> None:
    if not clips:
        raise InputError("there are no clips to group")
    if iteration_size < 1 or batch < 1:
        raise InputError(f"iteration size and batch must be positive: {iteration_size}, {batch}")
    ids = {clip.id for clip in clips}
    if len(ids) != len(clips):
        raise InputError(f"{len(clips) - len(ids)} clips share the id of another")


def _assignment(
    buckets: BucketTable | None, model: ModelSpec | None, max_tokens: int | None, batch: int
) -> Assign:
    """The rule that gives a clip its shape and micro-batch size."""
    if buckets is not None:
        if max_tokens is not None:
            raise InputError("a bucket table and a token budget exclude each other")
        return _fitted(buckets.assign, model)
    if max_tokens is None:
        return _fitted(lambda shape: Bucket(shape=shape, batch=batch), model)
    if model is None:
        raise InputError("a token budget needs a model, which says what a token is")
    if max_tokens < 1:
        raise InputError(f"a token budget must be positive, not {max_tokens}")
    spec, budget = model, max_tokens

    def by_tokens(shape: Shape) -> Bucket | str:
        tokens = spec.tokens(shape)
        if tokens > budget:
            return f"{shape} has {tokens} tokens, the budget of a micro-batch is {budget}"
        return Bucket(shape=shape, batch=budget // tokens)

    return _fitted(by_tokens, model)


def _fitted(assign: Assign, model: ModelSpec | None) -> Assign:
    """A rule whose shapes are rounded down to what the model takes."""
    if model is None:
        return assign

    def rounded(shape: Shape) -> Bucket | str:
        try:
            found = assign(shape)
            if isinstance(found, str):
                return found
            return Bucket(shape=model.fit_shape(found.shape), batch=found.batch)
        except InputError as error:
            return str(error)

    return rounded


def _fill(
    clips: Sequence[Clip], assign: Assign
) -> tuple[list[tuple[Shape, tuple[Clip, ...]]], list[Refusal]]:
    """Micro-batches in the order in which they close, the smaller ones last; and refusals."""
    known: dict[Shape, Bucket | str] = {}
    closed: list[tuple[Shape, tuple[Clip, ...]]] = []
    # Clips with cached latents stay among themselves: their micro-batches need no encoding.
    filling: dict[tuple[Shape, bool], list[Clip]] = {}
    refused: list[Refusal] = []
    for clip in clips:
        if clip.shape not in known:
            known[clip.shape] = assign(clip.shape)
        found = known[clip.shape]
        if isinstance(found, str):
            refused.append(Refusal(clip_id=clip.id, shape=clip.shape, reason=found))
            continue
        key = found.shape, bool(clip.latents)
        members = filling.setdefault(key, [])
        members.append(clip)
        if len(members) >= found.batch:
            closed.append((found.shape, tuple(filling.pop(key))))
    closed += [(shape, tuple(members)) for (shape, _), members in filling.items()]
    return closed, refused


def _iterations(full: Sequence[tuple[Shape, tuple[Clip, ...]]], size: int) -> tuple[Iteration, ...]:
    batches = [
        MicroBatch(id=f"mb{number}", shape=shape, clips=members)
        for number, (shape, members) in enumerate(full)
    ]
    return tuple(
        Iteration(name=f"it{at // size}", micro_batches=tuple(batches[at : at + size]))
        for at in range(0, len(batches), size)
    )
