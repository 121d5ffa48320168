"""Gradients summed over all holders of each parameter, clipped, and taken by AdamW.

Every bundle of cells has a flat buffer. Its sum runs over all replicas that hold its cells, in
whatever pipelines and stages; losses are divided by the tokens of the whole global batch, so the
sum is the gradient of that batch. With ZeRO-1 a holder gets, updates and hands out its own shard
only; shards are boxes of the cells, so that another plan can take them over. What a
tensor-parallel group holds several times counts once: its copies have equal gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.errors import RunError
from arachne_opt.executor.pipeline.seats import Seats
from arachne_opt.executor.update import MOMENTS, make_moments
from arachne_opt.pipeline.cells import (
    Box,
    Bundle,
    Key,
    Model,
    held_cells,
    make_bundles,
    parts_of,
    size,
    within,
)

# torch 2.13 calls them so, older ones reduce_scatter_tensor and all_gather_into_tensor.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@dataclass(slots=True, kw_only=True)
class _Span:
    """A box of a cell in a flat buffer, and the parameters that hold it.

    Args:
        places: each copy's parameter, and where the box lies in it.
    """

    key: Key
    box: Box
    begin: int
    share: float
    places: list[tuple[nn.Parameter, tuple[slice, ...]]]

    @property
    def end(self) -> int:
        """Where it ends in the buffer."""
        return self.begin + size(self.box)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the box."""
        return tuple(b - a for a, b in self.box)


@dataclass(slots=True, kw_only=True)
class _Buffer:
    """A bundle as this rank has it.

    Args:
        shards: parts of the buffer, of equal length; this rank's is ``shard``.
        part: this rank's values in fp32, which the optimizer updates.
        counts: this rank adds its part to the norm.
    """

    bundle: Bundle
    group: dist.ProcessGroup | None
    shards: int
    shard: int
    spans: list[_Span]
    flat: Tensor
    counts: bool
    part: nn.Parameter = field(init=False)
    works: list[dist.Work] = field(default_factory=list)

    def own(self, flat: Tensor) -> Tensor:
        """This rank's part of a buffer."""
        length = flat.numel() // self.shards
        return flat.narrow(0, self.shard * length, length)

    def own_spans(self) -> Iterator[tuple[_Span, slice]]:
        """This rank's boxes, and where they lie in its part."""
        length = self.flat.numel() // self.shards
        first = self.shard * length
        for span in self.spans:
            if first <= span.begin < first + length:
                yield span, slice(span.begin - first, span.end - first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A box of a parameter with its optimizer state, as views of this rank's own.

    Args:
        tensors: ``value``, ``exp_avg`` and ``exp_avg_sq``, flat, in fp32.
        first: no rank before this one holds the box.
    """

    key: Key
    box: Box
    tensors: dict[str, Tensor]
    first: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the box."""
        return tuple(b - a for a, b in self.box)


class PipelineUpdate:
    """AdamW over all stages and pipelines of a plan.

    Args:
        seats: with groups for all bundles.
        model: how parameters are cut.
        parameters: this rank's, by row and name.
        zero1: optimizer state is shared over the holders of each parameter.
        weight_decay: of the parameters that decay.
    """

    def __init__(
        self,
        seats: Seats,
        model: Model,
        parameters: Mapping[Key, nn.Parameter],
        *,
        zero1: bool,
        weight_decay: float,
    ) -> None:
        assert seats.rank is not None  # made by ranks of the layout
        self._seats, self._zero1 = seats, zero1
        self._parameters = dict(parameters)
        self._buffers = list(self._make(seats.rank, model))
        groups = [
            {
                "params": [b.part for b in self._buffers if b.bundle.decays is decays],
                "weight_decay": weight_decay if decays else 0.0,
            }
            for decays in (True, False)
        ]
        self.adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0)

    def sum_gradients(self) -> None:
        """Sums the gradients over all holders; parameters lose theirs."""
        for buffer in self._buffers:
            self._collect(buffer)
            if buffer.group is None:
                continue
            if buffer.shards == 1:
                work = dist.all_reduce(buffer.flat, group=buffer.group, async_op=True)
            else:
                own = buffer.own(buffer.flat)
                work = _reduce_scatter(own, buffer.flat, group=buffer.group, async_op=True)
            assert work is not None  # asked for
            buffer.works.append(work)
        for parameter in self._parameters.values():
            parameter.grad = None
        self._wait()

    def square_sum(self) -> float:
        """This rank's part of the square of the gradient's norm."""
        total = 0.0
        for buffer in self._buffers:
            if buffer.counts:
                total += buffer.own(buffer.flat).double().square().sum().item()
        return total

    def step(self, learning_rate: float, norm: float, clip_norm: float = 0.0) -> None:
        """Clips by the norm of the whole gradient, and updates the weights.

        Raises:
            RunError: the gradient is not finite.
        """
        if not math.isfinite(norm):
            what = f"the norm of the gradient is {norm}; the weights are left as they were"
            raise RunError(what, hint="a lower learning rate, clipping, or fp32")
        scale = clip_norm / (norm + 1e-6) if clip_norm and norm > clip_norm else 1.0
        for buffer in self._buffers:
            own = buffer.own(buffer.flat)
            buffer.part.grad = own.mul_(scale) if scale != 1.0 else own
        for group in self.adam.param_groups:
            group["lr"] = learning_rate
        self.adam.step()
        self.hand_out()

    def hand_out(self) -> None:
        """Puts updated values into the parameters of all holders."""
        for buffer in self._buffers:
            # The buffer of the gradients is free now.
            buffer.own(buffer.flat).copy_(buffer.part.detach())
            if buffer.shards > 1:
                own = buffer.own(buffer.flat).clone()
                work = _all_gather(buffer.flat, own, group=buffer.group, async_op=True)
                assert work is not None  # asked for
                buffer.works.append(work)
        self._wait()
        for buffer in self._buffers:
            for span in buffer.spans:
                values = buffer.flat[span.begin : span.end].view(span.shape)
                for parameter, where in span.places:
                    parameter.data[where] = values.to(parameter.dtype)

    def read_values(self) -> None:
        """Takes this rank's values from the parameters, which hold them in fp32."""
        for buffer in self._buffers:
            part = buffer.part.detach()
            for span, where in buffer.own_spans():
                parameter, place = span.places[0]
                part[where] = parameter.detach()[place].flatten()

    def pieces(self) -> Iterator[Piece]:
        """All boxes whose optimizer state this rank holds."""
        make_moments(self.adam)
        for buffer in self._buffers:
            state = self.adam.state[buffer.part]
            for span, where in buffer.own_spans():
                if span.begin == span.end:
                    continue
                tensors = {name: state[name][where] for name in MOMENTS}
                tensors["value"] = buffer.part.detach()[where]
                yield Piece(key=span.key, box=span.box, tensors=tensors, first=buffer.counts)

    @property
    def steps(self) -> int:
        """Optimizer steps done."""
        make_moments(self.adam)
        return int(self.adam.state[self._buffers[0].part]["step"].item())

    @steps.setter
    def steps(self, count: int) -> None:
        make_moments(self.adam)
        for buffer in self._buffers:
            self.adam.state[buffer.part]["step"].fill_(count)

    def gradients(self) -> Iterator[tuple[Key, Box, Tensor]]:
        """The summed gradients of this rank's boxes, before the next step."""
        for buffer in self._buffers:
            own = buffer.own(buffer.flat)
            for span, where in buffer.own_spans():
                yield span.key, span.box, own[where].view(span.shape)

    def _make(self, rank: int, model: Model) -> Iterator[_Buffer]:
        layout = self._seats.layout
        parts = parts_of(layout, model, rank)
        bundles = make_bundles(layout, model)
        held = held_cells(bundles, parts, model)
        repeated, tp = model.whole_on_members(), layout.members[rank].kind.tp
        for bundle in bundles:
            if rank not in bundle.holders:
                continue
            shards = bundle.shard_boxes(len(bundle.holders) if self._zero1 else 1)
            if self._zero1:  # shards go by rank, the parts of a collective by process
                ranks = sorted(bundle.holders, key=lambda r: self._seats.seats[r])
                shards = tuple(shards[bundle.holders.index(r)] for r in ranks)
            length = max(sum(map(size, boxes)) for boxes in shards)
            spans: list[_Span] = []
            for number, boxes in enumerate(shards):
                begin = number * length
                for cell, box in zip(bundle.cells, boxes, strict=True):
                    places = [(self._parameters[k], within(box, parts[k])) for k in held[cell]]
                    share = 1.0 / tp if cell.key in repeated else 1.0
                    spans.append(
                        _Span(key=cell.key, box=box, begin=begin, share=share, places=places)
                    )
                    begin = spans[-1].end
            yield self._buffer(bundle, spans, length, len(shards))

    def _buffer(self, bundle: Bundle, spans: list[_Span], length: int, shards: int) -> _Buffer:
        flat = torch.zeros(length * shards, device=spans[0].places[0][0].device)
        for span in spans:
            parameter, where = span.places[0]
            flat[span.begin : span.end] = parameter.detach()[where].flatten()
        place = self._seats.processes(bundle.holders).index(dist.get_rank())
        buffer = _Buffer(
            bundle=bundle,
            group=self._seats.group(bundle.holders),
            shards=shards,
            shard=place if shards > 1 else 0,
            spans=spans,
            flat=flat,
            counts=shards > 1 or place == 0,
        )
        buffer.part = nn.Parameter(buffer.own(flat).clone())
        return buffer

    def _collect(self, buffer: _Buffer) -> None:
        buffer.flat.zero_()
        for span in buffer.spans:
            into = buffer.flat[span.begin : span.end].view(span.shape)
            for parameter, where in span.places:
                if parameter.grad is not None:
                    into.add_(parameter.grad[where], alpha=span.share)

    def _wait(self) -> None:
        for buffer in self._buffers:
            for work in buffer.works:
                work.wait()
            buffer.works.clear()
