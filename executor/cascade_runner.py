"""Runs this rank's share of one iteration in the order of the plan.

All ranks go through the plan in one order (start, cascade, task) and skip what is not theirs. A
hand-off has its place right behind the task that produces, so any two ranks see what they share
in the same order and none can wait in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from arachne_opt.cascade.plan import Placement
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.distributed import EXCHANGES, Clock
from arachne_opt.executor.encoding import Member
from arachne_opt.executor.groups import Devices, GroupPool
from arachne_opt.executor.handoff import HandOff, Route
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.seeds import generator
from arachne_opt.executor.sequence_parallel import split_tokens
from arachne_opt.executor.texts import text_features
from arachne_opt.executor.trace import RankTrace
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.executor.work import LeftOut, build_work
from arachne_opt.workload import MicroBatch


def _nothing() -> None:
    """What is called where nobody asked for a call."""


class CascadeRunner:
    """Replays iterations on one rank; gradients are left in the parameters, not yet summed."""

    def __init__(
        self, job: ReplayJob, adapter: VideoAdapter, pool: GroupPool, watchdog: Watchdog
    ) -> None:
        self._job, self._adapter, self._pool, self._watchdog = job, adapter, pool, watchdog
        self._rank = watchdog.rank
        self._clock = Clock(adapter.device)
        self._timeouts: dict[Devices, float] = {}
        for iteration in (*job.iterations, *job.opening):
            self._extend_timeouts(iteration)
        self._dropout = has_dropout(adapter.transformer)
        self._work = build_work(job, adapter, self._rank)
        self.left_out: LeftOut = {}

    def run(
        self,
        step: int,
        iteration: ReplayIteration,
        *,
        following: ReplayIteration | None = None,
        before_last: Callable[[], None] = _nothing,
        after_tasks: Callable[[], None] = _nothing,
    ) -> RankTrace:
        """Forward and backward of this rank's tasks of one step; the loss is its own part.

        Args:
            step: number of the optimizer step.
            iteration: what to run; the same on all ranks.
            following: what comes next, as far as known; its files are read meanwhile.
            before_last: called before the last backward of this rank.
            after_tasks: called when this rank has no task left.

        Raises:
            RunError: no clip can be read, or a task failed; names it and the rank.
        """
        placements = iteration.plan.placements
        self._begin(step, iteration, following)
        last = self._last_backward(iteration)
        trace = RankTrace(step=step)
        handoff = HandOff(self._rank, self._adapter.device)
        losses: list[Tensor] = []
        for index, placement in enumerate(placements):
            self._watchdog.place = f"step {step}, task {index + 1} of {len(placements)}"
            if not iteration.denoises(placement):
                self._prepare(iteration, index, handoff, trace)
            elif self._rank in placement.devices:
                if index == last:
                    before_last()
                losses.append(self._denoise(iteration, index, handoff, trace))
        trace.tasks_end_us = self._clock.now_us()
        self._watchdog.place = f"step {step}, all tasks done"
        after_tasks()
        with self._watchdog.task("waiting for hand-offs to arrive", self._job.iteration_timeout_s):
            handoff.finish()
        trace.sent_bytes = dict(handoff.sent_bytes)
        trace.loss = sum(loss.double().item() for loss in losses)
        return trace

    def _begin(
        self, step: int, iteration: ReplayIteration, following: ReplayIteration | None
    ) -> None:
        """Makes the groups, reads the clips, and starts the clock on all ranks at once."""
        groups = [group_of(placement) for placement in iteration.plan.placements]
        self._extend_timeouts(iteration)
        self._pool.prepare({group: self._timeouts[group] for group in groups})
        limit_s = self._job.iteration_timeout_s
        with self._watchdog.task(f"reading clips for step {step}", limit_s):
            self.left_out = self._work.begin(iteration, following)
        with self._watchdog.task(f"meeting for step {step}", limit_s):
            self._clock.restart()

    def _last_backward(self, iteration: ReplayIteration) -> int | None:
        """Index of this rank's last denoise task, None where it has none."""
        own = (
            index
            for index, placement in enumerate(iteration.plan.placements)
            if iteration.denoises(placement) and self._rank in placement.devices
        )
        return max(own, default=None)

    def now_us(self) -> int:
        """Time since the step began."""
        return self._clock.now_us()

    def _prepare(
        self, iteration: ReplayIteration, index: int, handoff: HandOff, trace: RankTrace
    ) -> None:
        """Encodes clips or texts where this rank takes part; sends or expects where it has to."""
        placement = iteration.plan.placements[index]
        route = route_of(iteration, placement, self._adapter.config)
        tokens = None
        if self._rank in placement.devices:
            with self._timed(iteration, index, trace):
                work = self._work.encode if iteration.encodes(placement) else self._work.text
                tokens = work(iteration, placement, self._member(placement))
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
        before, member = self._clock.now_us(), self._member(placement)
        with self._watchdog.task(
            f"waiting for the inputs of {label}", self._job.iteration_timeout_s
        ):
            if iteration.is_encoded(placement.cascade):
                tokens = handoff.take(placement.cascade)
            else:
                tokens = self._work.cached(iteration, placement, member)
            texts = None
            if iteration.has_task(placement.cascade, "text"):
                texts = handoff.take(placement.cascade, text=True)
        trace.waits_us[placement.cascade] = self._clock.now_us() - before
        with self._timed(iteration, index, trace), self._seeded(batch, trace.step, member):
            return self._work.denoise(
                iteration, placement, tokens, member, step=trace.step, texts_B1F=texts
            )

    @contextmanager
    def _seeded(self, batch: MicroBatch, step: int, member: Member) -> Iterator[None]:
        """Dropout follows the micro-batch and the step, not what the rank did before."""
        if not self._dropout:
            yield
            return
        devices = [self._adapter.device] if self._adapter.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            words = "dropout", self._job.seed, batch.id, step, member.index
            torch.manual_seed(generator(*words).initial_seed())
            yield

    def _extend_timeouts(self, iteration: ReplayIteration) -> None:
        """Keeps the longest time-out of any task of each group."""
        for placement in iteration.plan.placements:
            group = group_of(placement)
            limit_s = self._job.timeout_s(placement)
            self._timeouts[group] = max(self._timeouts.get(group, 0.0), limit_s)

    def _member(self, placement: Placement) -> Member:
        group = group_of(placement)
        index = group.index(self._rank)
        return Member(index=index, degree=len(group), group=self._pool.get(group))

    @contextmanager
    def _timed(self, iteration: ReplayIteration, index: int, trace: RankTrace) -> Iterator[None]:
        placement = iteration.plan.placements[index]
        limit_s = self._job.timeout_s(placement)
        start = self._clock.now_us()
        EXCHANGES.take_us()
        with self._watchdog.task(iteration.label(placement), limit_s):
            yield
        trace.spans[index] = start, self._clock.now_us()
        trace.exchange_us[index] = EXCHANGES.take_us()


def route_of(iteration: ReplayIteration, before: Placement, config: ModelConfig) -> Route:
    """The hand-off that follows an encode task or a text task."""
    denoise = next(
        p
        for p in iteration.plan.placements
        if p.cascade == before.cascade and iteration.denoises(p)
    )
    batch = iteration.batch_of(before.cascade)
    consumers = group_of(denoise)
    text = not iteration.encodes(before)
    tokens = config.token_count(batch.shape)
    return Route(
        cascade=before.cascade,
        producers=group_of(before),
        consumers=consumers,
        counts=(1,) * len(consumers) if text else split_tokens(tokens, len(consumers)),
        clips=batch.size,
        features=text_features(config) if text else config.carried_features,
        text=text,
    )


def group_of(placement: Placement) -> Devices:
    """Ranks of a placement; equal sets share a process group, so the order is ascending."""
    return tuple(sorted(placement.devices))


def has_dropout(module: nn.Module) -> bool:
    """Whether a model draws random numbers of its own in training."""
    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    return any(isinstance(part, kinds) and part.p > 0 for part in module.modules())
