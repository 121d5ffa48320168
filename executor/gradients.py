"""The gradient of the whole global batch, whatever the plan.

The loss of an iteration is the sum over its clips of weight times mean squared error, where the
weights add up to 1 over the iteration. A rank adds up what its tokens contribute; the sum over
all ranks is the gradient that one process would have computed. Nothing is averaged over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 25 * 2**20

# torch 2.13 calls it so, older ones reduce_scatter_tensor.
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@dataclass(slots=True)
class Bucket:
    """Gradients of some parameters in one flat buffer, padded to a multiple of the shards.

    ``missing`` counts the parameters whose gradients the armed backward still has to give.
    """

    parameters: list[nn.Parameter]
    flat: Tensor
    size: int
    missing: int = 0


class GradientBuckets:
    """Flat buffers that hold all gradients; backward adds into them, so nothing is copied.

    Which parameters share a bucket does not depend on the number of ranks. Parameters that a rank
    never touches contribute zeros. Do not set gradients to None.

    Args:
        parameters: those that need no gradient are left out.
        group: of all ranks, used by nothing else: sums may run while tasks still talk.
        shards: 1 gives every rank the whole sum; the number of ranks gives each its own part.
        bucket_bytes: largest size of a bucket of several parameters.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        group: dist.ProcessGroup | None = None,
        shards: int = 1,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._group, self._shards = group, shards
        self._armed = False
        self._works: list[dist.Work | None] = []
        self.buckets: list[Bucket] = []
        full: list[nn.Parameter] = []
        size = 0
        for parameter in parameters:
            if not parameter.requires_grad:
                continue
            own = parameter.numel() * parameter.element_size()
            if full and (size + own > bucket_bytes or parameter.dtype != full[0].dtype):
                self._add(full)
                full, size = [], 0
            full.append(parameter)
            size += own
        if full:
            self._add(full)

    def zero(self) -> None:
        """Starts a new iteration."""
        self._armed = False
        for bucket in self.buckets:
            bucket.flat.zero_()

    def arm(self) -> None:
        """Says that the next backward is this rank's last: sums begin as it fills the buckets."""
        self._armed = True
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)

    def start_rest(self) -> None:
        """Begins all sums that have not begun; this rank's gradients are whole by now."""
        self._armed = False
        while len(self._works) < len(self.buckets):
            self._start_next()

    def wait(self) -> None:
        """Returns when all sums are there."""
        for work in self._works:
            if work is not None:
                work.wait()
        self._works.clear()

    def own(self, flat: Tensor, rank: int) -> Tensor:
        """A rank's part of a buffer as long as a bucket's; the whole buffer without shards."""
        part = flat.numel() // self._shards
        return flat.narrow(0, rank * part, part) if self._shards > 1 else flat

    def _start_next(self) -> None:
        # Backward fills the last parameters first; all ranks begin in this one order.
        bucket = self.buckets[-1 - len(self._works)]
        if dist.get_world_size() == 1:
            self._works.append(None)
        elif self._shards == 1:
            self._works.append(dist.all_reduce(bucket.flat, group=self._group, async_op=True))
        else:
            own = self.own(bucket.flat, dist.get_rank())
            work = _reduce_scatter(own, bucket.flat, group=self._group, async_op=True)
            self._works.append(work)

    def _filled(self, bucket: Bucket, _parameter: Tensor) -> None:
        if not self._armed:
            return
        bucket.missing -= 1
        while len(self._works) < len(self.buckets):
            if self.buckets[-1 - len(self._works)].missing > 0:
                return
            self._start_next()

    def _add(self, parameters: list[nn.Parameter]) -> None:
        first = parameters[0]
        numbers = [parameter.numel() for parameter in parameters]
        size = sum(numbers)
        padded = -(-size // self._shards) * self._shards
        flat = torch.zeros(padded, dtype=first.dtype, device=first.device)
        bucket = Bucket(parameters=parameters, flat=flat, size=size)
        for parameter, part in zip(parameters, torch.split(flat[:size], numbers), strict=True):
            parameter.grad = part.view_as(parameter)
            hook = partial(self._filled, bucket)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # torch's stub
        self.buckets.append(bucket)
