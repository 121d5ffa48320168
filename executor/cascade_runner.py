"""Runs this rank's share of one iteration in the order of the plan.

All ranks go through the plan in one order (start, cascade, task) and skip what is not theirs. A
hand-off has its place right behind the task that produces, so any two ranks see what they share
in the same order and none can wait in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from arachne_opt.cascade.plan import Placement
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.denoising import denoise_task
from arachne_opt.executor.distributed import Clock, gather
from arachne_opt.executor.encoding import Member, encode_batch
from arachne_opt.executor.gradients import clip_weight
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.handoff import HandOff, Route
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.sequence_parallel import Window, split_tokens
from arachne_opt.executor.tokens import patchify
from arachne_opt.executor.watchdog import Watchdog


@dataclass(slots=True, kw_only=True)
class RankTrace:
    """What one rank did in one step; times in microseconds since the step's start.

    Args:
        spans: start and end of each of its placements, by the index of the placement.
        sent_bytes: bytes that it handed to other ranks, by cascade.
        waited_us: time spent waiting for hand-offs.
        tasks_end_us: when its last task was done.
        makespan_us: when the last task of any rank was done.
        sync_us: time of the gradient synchronisation.
        optimizer_us: time of the optimizer step.
        loss: of the whole iteration.
    """

    step: int
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    sent_bytes: dict[int, int] = field(default_factory=dict)
    waited_us: int = 0
    tasks_end_us: int = 0
    makespan_us: int = 0
    sync_us: int = 0
    optimizer_us: int = 0
    loss: float = 0.0

    @property
    def overhead_us(self) -> int:
        """Time per task that went into neither a task nor waiting."""
        busy = sum(end - start for start, end in self.spans.values())
        return max(0, self.tasks_end_us - busy - self.waited_us) // max(1, len(self.spans))


class CascadeRunner:
    """Replays iterations on one rank; gradients are left in the parameters, not yet summed."""

    def __init__(
        self, job: ReplayJob, adapter: VideoAdapter, pool: GroupPool, watchdog: Watchdog
    ) -> None:
        self._job, self._adapter, self._pool, self._watchdog = job, adapter, pool, watchdog
        self._rank = watchdog.rank
        self._clock = Clock(adapter.device)
        self._timeouts = _group_timeouts(job)

    def run(self, step: int) -> RankTrace:
        """Forward and backward of this rank's tasks of one step.

        Raises:
            InputError: a clip cannot be read.
            RunError: a task failed; names it and the rank.
        """
        iteration = self._job.iteration_of(step)
        groups = [_group(p) for p in iteration.plan.placements]
        self._pool.prepare({group: self._timeouts[group] for group in groups})
        trace = RankTrace(step=step)
        handoff = HandOff(self._rank, self._adapter.device)
        losses: list[Tensor] = []
        with self._watchdog.task(f"meeting for step {step}", self._job.iteration_timeout_s):
            self._clock.restart()
        for index, placement in enumerate(iteration.plan.placements):
            if placement.task == 0:
                self._encode(iteration, index, handoff, trace)
            elif self._rank in placement.devices:
                losses.append(self._denoise(iteration, index, handoff, trace))
        trace.tasks_end_us = self._clock.now_us()
        with self._watchdog.task("waiting for hand-offs to arrive", self._job.iteration_timeout_s):
            handoff.finish()
        trace.sent_bytes = dict(handoff.sent_bytes)
        own = sum(loss.double().item() for loss in losses)
        with self._watchdog.task("summing the loss", self._job.iteration_timeout_s):
            rows = gather((own, trace.tasks_end_us))
        trace.loss = sum(row[0] for row in rows)
        trace.makespan_us = round(max(row[1] for row in rows))
        return trace

    def now_us(self) -> int:
        """Time since the step began."""
        return self._clock.now_us()

    def _encode(
        self, iteration: ReplayIteration, index: int, handoff: HandOff, trace: RankTrace
    ) -> None:
        """Encodes where this rank takes part; sends or expects latents where it has to."""
        placement = iteration.plan.placements[index]
        route = route_of(iteration, placement, self._adapter.config)
        tokens = None
        if self._rank in placement.devices:
            with self._timed(iteration, index, trace):
                batch = iteration.batch_of(placement.cascade)
                latents = encode_batch(self._adapter, batch, self._member(placement))
                tokens = patchify(latents, self._adapter.config.patch)
        limit_s = self._job.iteration_timeout_s
        with self._watchdog.task(f"hand-off after {iteration.label(placement)}", limit_s):
            handoff.exchange(route, tokens)

    def _denoise(
        self, iteration: ReplayIteration, index: int, handoff: HandOff, trace: RankTrace
    ) -> Tensor:
        """Weighted loss of this rank's tokens; its gradient is added to the parameters."""
        placement = iteration.plan.placements[index]
        batch = iteration.batch_of(placement.cascade)
        label = iteration.label(placement)
        before = self._clock.now_us()
        with self._watchdog.task(
            f"waiting for the latents for {label}", self._job.iteration_timeout_s
        ):
            clean = handoff.take(placement.cascade)
        trace.waited_us += self._clock.now_us() - before
        member, config = self._member(placement), self._adapter.config
        counts = split_tokens(config.token_count(batch.shape), member.degree)
        window = Window(counts=counts, index=member.index, group=member.group)
        weight = clip_weight(iteration.batches, batch, self._job.weight_rule, config)
        with self._timed(iteration, index, trace):
            return denoise_task(
                self._adapter,
                batch,
                clean,
                window,
                weight=weight,
                seed=self._job.seed,
                step=trace.step,
            )

    def _member(self, placement: Placement) -> Member:
        group = _group(placement)
        index = group.index(self._rank)
        return Member(index=index, degree=len(group), group=self._pool.get(group))

    @contextmanager
    def _timed(self, iteration: ReplayIteration, index: int, trace: RankTrace) -> Iterator[None]:
        placement = iteration.plan.placements[index]
        limit_s = self._job.timeout_s(placement)
        start = self._clock.now_us()
        with self._watchdog.task(iteration.label(placement), limit_s):
            yield
        trace.spans[index] = start, self._clock.now_us()


def route_of(iteration: ReplayIteration, encode: Placement, config: ModelConfig) -> Route:
    """The hand-off that follows an encode task."""
    denoise = next(
        p for p in iteration.plan.placements if p.cascade == encode.cascade and p.task == 1
    )
    batch = iteration.batch_of(encode.cascade)
    consumers = _group(denoise)
    return Route(
        cascade=encode.cascade,
        producers=_group(encode),
        consumers=consumers,
        counts=split_tokens(config.token_count(batch.shape), len(consumers)),
        clips=batch.size,
        features=config.token_features,
    )


def _group(placement: Placement) -> tuple[int, ...]:
    """Ranks of a placement; equal sets share a process group, so the order is ascending."""
    return tuple(sorted(placement.devices))


def _group_timeouts(job: ReplayJob) -> dict[tuple[int, ...], float]:
    """The longest time-out of any task of each group."""
    longest: dict[tuple[int, ...], float] = {}
    for iteration in job.iterations:
        for placement in iteration.plan.placements:
            group = _group(placement)
            longest[group] = max(longest.get(group, 0.0), job.timeout_s(placement))
    return longest
