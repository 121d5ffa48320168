"""Prices all micro-batches that the clips of an iteration may form."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from arachne_opt.cascade.batching import BatchingProblem, ClipFamily
from arachne_opt.cascade.problem import Cascade, Task
from arachne_opt.cluster import Cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.build import build_cascade, check_degrees, resident_bytes
from arachne_opt.errors import InfeasibleError, InputError
from arachne_opt.units import format_bytes
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

MOST_CLIPS = 16

_log = logging.getLogger(__name__)


def build_batching_problem(
    iteration: Iteration,
    cluster: Cluster,
    cost_model: CostModel,
    *,
    degrees: Collection[int] | None = None,
    memory_limit_bytes: int | None = None,
    max_tokens: int | None = None,
    most_clips: int = MOST_CLIPS,
) -> BatchingProblem:
    """The problem of batching the clips of an iteration anew and placing the micro-batches.

    Clips keep the shapes of their micro-batches. What fits no device is no candidate.

    Args:
        iteration: clips in any grouping.
        cluster: where they may run.
        cost_model: prices the candidates.
        degrees: only these degrees; None allows all that the model offers.
        memory_limit_bytes: most memory that a task may take per device, less than what the
            devices have; None leaves it at the devices' own.
        max_tokens: most video tokens of a micro-batch.
        most_clips: most clips of a micro-batch; sizes that the iteration itself has are
            candidates all the same.

    Raises:
        InputError: a degree that a task can never run at, or clips without a price.
        InfeasibleError: the clips of a shape fit no device, however they are batched.
    """
    if most_clips < 1:
        raise InputError(f"a micro-batch holds at least one clip, not {most_clips}")
    if degrees is not None:
        check_degrees(degrees, cost_model)
    # Clips with cached latents, which need no encoding, stay among themselves.
    by_shape: dict[tuple[Shape, bool], list[Clip]] = {}
    widest: dict[Shape, int] = {}
    for batch in iteration.micro_batches:
        for clip in batch.clips:
            by_shape.setdefault((batch.shape, bool(clip.latents)), []).append(clip)
        widest[batch.shape] = max(widest.get(batch.shape, 0), batch.size)
    pricer = _Pricer(cluster, cost_model, degrees, memory_limit_bytes)
    families = []
    for (shape, _), clips in sorted(by_shape.items()):
        ordered = tuple(sorted(clips, key=lambda c: (-c.text_tokens, c.id)))
        most = max(most_clips, widest[shape])
        if max_tokens is not None:
            most = min(most, max(1, max_tokens // cost_model.model.tokens(shape)))
        families.append(_family(shape, ordered, most, pricer))
    return BatchingProblem(
        name=iteration.name,
        cluster=cluster,
        families=tuple(families),
        catalogue=tuple(pricer.catalogue),
        cost_version=cost_model.version,
        tail_us=cost_model.tail_us(cluster),
        resident_bytes=resident_bytes(cost_model, cluster),
    )


def _family(shape: Shape, clips: tuple[Clip, ...], most: int, pricer: _Pricer) -> ClipFamily:
    rows = []
    for first in range(len(clips)):
        sizes = range(1, min(most, len(clips) - first) + 1)
        rows.append(tuple(pricer.kind(shape, clips[first : first + size]) for size in sizes))
    family = ClipFamily(shape=shape, clips=clips, kinds=tuple(rows))
    if not _coverable(rows):
        # A clip alone says best what is missing.
        raise pricer.refusal(shape, clips)
    return family


def _coverable(rows: Sequence[Sequence[int | None]]) -> bool:
    """Whether candidates one after the other can hold all clips."""
    reached = {0}
    for first, row in enumerate(rows):
        if first in reached:
            reached |= {first + size for size, kind in enumerate(row, 1) if kind is not None}
    return len(rows) in reached


class _Pricer:
    """Prices micro-batches, each kind once, and collects them in a catalogue."""

    def __init__(
        self,
        cluster: Cluster,
        cost_model: CostModel,
        degrees: Collection[int] | None,
        memory_limit_bytes: int | None,
    ) -> None:
        self.catalogue: list[Cascade] = []
        self._cluster = cluster
        self._cost_model = cost_model
        self._degrees = degrees
        self._limit_bytes = memory_limit_bytes
        self._kinds: dict[tuple[Shape, int, int, bool, bool], int | None] = {}
        self._refusals: dict[tuple[Shape, int, int, bool, bool], InputError | InfeasibleError] = {}

    def kind(self, shape: Shape, clips: tuple[Clip, ...]) -> int | None:
        """Index of a micro-batch in the catalogue, None where it fits nowhere or has no price."""
        batch = MicroBatch(id="candidate", shape=shape, clips=clips)
        key = self._key(batch)
        if key not in self._kinds:
            self._kinds[key] = self._price(key, batch)
        return self._kinds[key]

    def refusal(self, shape: Shape, clips: tuple[Clip, ...]) -> InputError | InfeasibleError:
        """Why clips of a shape cannot be batched, by the first clip alone."""
        single = MicroBatch(id="alone", shape=shape, clips=clips[:1])
        others = (r for (s, *_), r in self._refusals.items() if s == shape)
        return self._refusals.get(self._key(single)) or next(others)

    def _key(self, batch: MicroBatch) -> tuple[Shape, int, int, bool, bool]:
        text = self._cost_model.model.used_text_tokens(batch.text_tokens)
        return batch.shape, batch.size, text, batch.cached, batch.embedded

    def _price(self, key: tuple[Shape, int, int, bool, bool], batch: MicroBatch) -> int | None:
        try:
            cascade = build_cascade(batch, self._cluster, self._cost_model, self._degrees)
            if self._limit_bytes is not None:
                tasks = tuple(_within(task, batch, self._limit_bytes) for task in cascade.tasks)
                cascade = replace(cascade, tasks=tasks)
        except (InputError, InfeasibleError) as error:
            _log.info("no candidate: %s", error)
            self._refusals[key] = error
            return None
        self.catalogue.append(cascade)
        return len(self.catalogue) - 1


def _within(task: Task, batch: MicroBatch, limit_bytes: int) -> Task:
    """The task with the options that keep a memory limit."""
    kept = tuple(o for o in task.options if o.memory_bytes <= limit_bytes)
    if not kept:
        least = min(o.memory_bytes for o in task.options)
        what = f"{task.name} of {batch.label} needs at least {format_bytes(least)} per device,"
        what += f" the limit is {format_bytes(limit_bytes)}"
        raise InfeasibleError(what, where=f"clip {batch.clips[0].id}", hint="a higher limit")
    return replace(task, options=kept)
