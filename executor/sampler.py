"""Which clips a training has seen, and which iterations are left; knows no torch.

The position is a set of clips, no place in a list of iterations: after a resume on other devices
the iterations may be cut otherwise, and still no clip is trained twice or left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from arachne_opt.errors import InputError
from arachne_opt.workload import Iteration, MicroBatch

if TYPE_CHECKING:
    from arachne_opt.executor.job import ReplayIteration, ReplayJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a training has come.

    Args:
        step: optimizer steps done.
        epoch: whole epochs done.
        trained: ids of the clips that the begun epoch has trained.
    """

    step: int = 0
    epoch: int = 0
    trained: frozenset[str] = frozenset()

    def after(self, clips: Collection[str], whole: frozenset[str]) -> Position:
        """The position one step later.

        Args:
            clips: what the step trained.
            whole: all clips of an epoch; when none is left, the next epoch begins.
        """
        trained = self.trained.union(clips)
        if whole <= trained:
            return Position(step=self.step + 1, epoch=self.epoch + 1)
        return Position(step=self.step + 1, epoch=self.epoch, trained=trained)


class Sampler:
    """The iterations that a job still has to run from a position on.

    Raises:
        InputError: an iteration mixes clips that were trained with others that were not.
    """

    def __init__(self, job: ReplayJob, position: Position | None = None) -> None:
        self._job = job
        start = position or Position()
        self._whole = frozenset(clip for it in job.iterations for clip in clip_ids(it.batches))
        if self._whole <= start.trained:
            start = Position(step=start.step, epoch=start.epoch + 1)
        self.position = start
        self._first, self._first_epoch = start.step, start.epoch
        self._begun = _begun(job, start) if start.epoch < job.epochs else ()

    @property
    def total_steps(self) -> int:
        """Steps of the whole training, those before this run included."""
        later = max(0, self._job.epochs - self._first_epoch - 1)
        return self._first + len(self._begun) + later * len(self._job.iterations)

    def iteration_at(self, step: int) -> ReplayIteration:
        """The iteration of a step of this run."""
        offset = step - self._first
        if offset < len(self._begun):
            return self._begun[offset]
        return self._job.iterations[(offset - len(self._begun)) % len(self._job.iterations)]

    def advance(self, iteration: Iteration) -> None:
        """Takes note that an iteration was trained."""
        self.position = self.position.after(clip_ids(iteration), self._whole)


def clip_ids(iteration: Iteration) -> list[str]:
    """Ids of all clips of an iteration."""
    return [clip.id for batch in iteration.micro_batches for clip in batch.clips]


def unfinished(iterations: Iterable[Iteration], trained: Collection[str]) -> tuple[Iteration, ...]:
    """The iterations without the clips that were trained; empty ones are left out."""
    done = frozenset(trained)
    rest = []
    for iteration in iterations:
        batches = [_without(batch, done) for batch in iteration.micro_batches]
        left = tuple(batch for batch in batches if batch is not None)
        if left:
            rest.append(Iteration(name=iteration.name, micro_batches=left))
    return tuple(rest)


def refuse_repeated_clips(job: ReplayJob) -> None:
    """Refuses a clip that an epoch holds twice: which of the two was trained could not be told."""
    seen: set[str] = set()
    for iteration in job.iterations:
        for clip in clip_ids(iteration.batches):
            if clip in seen:
                what = f"clip {clip} is in the epoch twice; checkpoints keep which were trained"
                raise InputError(what, where=f"iteration {iteration.name}", hint="other clip ids")
            seen.add(clip)


def _without(batch: MicroBatch, done: frozenset[str]) -> MicroBatch | None:
    left = tuple(clip for clip in batch.clips if clip.id not in done)
    if len(left) == batch.size:
        return batch
    return MicroBatch(id=batch.id, shape=batch.shape, clips=left) if left else None


def _begun(job: ReplayJob, start: Position) -> tuple[ReplayIteration, ...]:
    """The iterations that are left of the begun epoch."""
    own = job.opening if job.opening and job.opening_epoch == start.epoch else job.iterations
    left = []
    for iteration in own:
        clips = clip_ids(iteration.batches)
        done = [clip for clip in clips if clip in start.trained]
        if not done:
            left.append(iteration)
        elif len(done) < len(clips):
            what = f"{len(done)} of {len(clips)} clips were trained before, among them {done[0]}"
            hint = "arachne train --resume, which plans the rest of the epoch anew"
            raise InputError(what, where=f"iteration {iteration.name}", hint=hint)
    return tuple(left)
