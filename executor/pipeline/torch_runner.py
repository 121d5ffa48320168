"""Runs uniform pipelines by torch.distributed.pipelining, interleaved ones among them.

torch's schedules want equal stages: the same replicas, degrees and samples in each, two stages or
more. All else is run by tables. Interleaved 1F1B, where a rank holds several runs of rows, is
torch's alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from arachne_opt.executor.pipeline.runner import Observer, Phase
from arachne_opt.executor.pipeline.schedule import Action, Kind
from arachne_opt.executor.pipeline.seats import Seats
from arachne_opt.executor.pipeline.stage import Fetch, Loss, RowChain
from arachne_opt.executor.pipeline.uniform import chains_of_ranks
from arachne_opt.pipeline.problem import Schedule

# Of one sample: of tokens, of hidden values, of logits.
Shapes = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class TorchRunner:
    """One rank of a uniform pipeline; gradients add up in the parameters.

    Args:
        seats: with a group for every chain of ranks.
        chains: this rank's runs of rows.
        fetch: tokens and targets of its samples.
        loss: sum over tokens.
        shapes: of one sample.
        observer: sees the time pass.
    """

    def __init__(
        self,
        seats: Seats,
        chains: Sequence[RowChain],
        fetch: Fetch,
        loss: Loss,
        schedule: Schedule,
        *,
        shapes: Shapes,
        dtype: torch.dtype,
        device: torch.device,
        observer: Observer,
    ) -> None:
        assert seats.rank is not None  # made by ranks of the layout
        layout = seats.layout
        member = layout.members[seats.rank]
        self._count = layout.plan.counts[member.pipeline]
        stages = len(layout.plan.pipelines[member.pipeline].stages)
        self._first, self._last = member.stage == 0, member.stage == stages - 1
        self._fetch, self._loss = fetch, loss
        self._tokens, self._total = 1.0, 0.0
        self._gaps = _Gaps(observer)
        samples = len(layout.samples(member.pipeline, member.stage, member.replica))
        group = seats.group(next(c for c in chains_of_ranks(layout) if seats.rank in c))
        parts: list[Any] = []
        for number, chain in enumerate(chains):
            place, total = number * stages + member.stage, stages * len(chains)
            enters, leaves = (
                _example(samples, shapes, dtype, 0 if at == 0 else 2 if at == total else 1)
                for at in (place, place + 1)
            )
            part = _WatchedStage(
                chain, place, total, device, input_args=enters, output_args=leaves, group=group
            )
            part.gaps = self._gaps
            parts.append(part)
        self._schedule = _schedule(schedule, parts, self._count, self._scaled)

    def begin(self, tokens: float) -> None:
        """Starts an iteration whose loss is divided by so many tokens."""
        self._tokens, self._total = tokens, 0.0

    @property
    def loss(self) -> float:
        """This rank's part of the loss of the iteration."""
        return self._total

    def run(self) -> None:
        """One iteration: all forwards and backwards of this rank."""
        losses: list[Tensor] = []
        given: list[Tensor] = []
        wanted: dict[str, Any] = {}
        if self._first:
            given.append(torch.cat([self._fetch(m)[0] for m in range(self._count)]))
        if self._last:
            targets = torch.cat([self._fetch(m)[1] for m in range(self._count)])
            wanted = {"target": targets, "losses": losses}
        self._gaps.begin()
        self._schedule.step(*given, **wanted, return_outputs=False)
        self._gaps.end()
        self._total += sum(loss.item() for loss in losses)

    def _scaled(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self._loss(logits, targets) / self._tokens


class _Gaps:
    """Tells an observer what is computed; what lies between is waiting, and torch's own work."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._free_s = 0.0

    def begin(self) -> None:
        """An iteration begins."""
        self._free_s = self._observer.now_s()

    @contextmanager
    def computing(self, forward: bool, microbatch: int) -> Iterator[None]:
        """The time of a block is computation."""
        action, begin_s = Action(Kind.COMPUTE, forward, microbatch), self._observer.now_s()
        yield
        end_s = self._observer.now_s()
        self._observer.note(Phase.WAIT, action, self._free_s, begin_s)
        self._observer.note(Phase.COMPUTE, action, begin_s, end_s)
        self._free_s = end_s

    def end(self) -> None:
        """All is computed, and the last messages have left."""
        self._observer.note(Phase.SEND, None, self._free_s, self._observer.now_s())


class _WatchedStage(PipelineStage):
    """A stage of torch's that tells when it computes; the loss is not its own."""

    gaps: _Gaps

    def forward_one_chunk(self, fwd_chunk_id: int, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - those of torch
        """Forward of a micro-batch."""
        with self.gaps.computing(True, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *given, **named)

    def backward_one_chunk(self, bwd_chunk_id: int, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - those of torch
        """Backward of a micro-batch."""
        with self.gaps.computing(False, bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, *given, **named)


def _example(samples: int, shapes: Shapes, dtype: torch.dtype, kind: int) -> Tensor:
    """What a micro-batch is like between runs of rows: tokens, hidden values or logits."""
    if kind == 0:
        return torch.empty(samples, *shapes[0], dtype=torch.long, device="meta")
    return torch.empty(samples, *shapes[kind], dtype=dtype, device="meta", requires_grad=True)


def _schedule(schedule: Schedule, parts: list[Any], count: int, loss: Loss) -> Any:  # noqa: ANN401 - torch's stages have no common public type
    common: dict[str, Any] = {"n_microbatches": count, "loss_fn": loss, "scale_grads": False}
    match schedule:
        case Schedule.ONE_F_ONE_B:
            return Schedule1F1B(parts[0], **common)
        case Schedule.GPIPE:
            return ScheduleGPipe(parts[0], **common)
        case Schedule.INTERLEAVED:
            return ScheduleInterleaved1F1B(parts, **common)
