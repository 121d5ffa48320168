"""The gradient of the whole global batch, whatever the plan.

The loss of an iteration is the sum over its clips of weight times mean squared error, where the
weights add up to 1 over the iteration. A rank adds up what its tokens contribute; the sum over
all ranks is the gradient that one process would have computed. Nothing is averaged over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.workload import Iteration, MicroBatch

BUCKET_BYTES = 25 * 2**20


def clip_weight(iteration: Iteration, batch: MicroBatch, rule: str, config: ModelConfig) -> float:
    """Weight of each clip of a micro-batch: an equal share, or by its tokens."""
    batches = iteration.micro_batches
    if rule == "clip":
        return 1 / sum(b.size for b in batches)
    total = sum(b.size * config.token_count(b.shape) for b in batches)
    return config.token_count(batch.shape) / total


class GradientBuckets:
    """Flat buffers that hold all gradients; backward adds into them, so nothing is copied.

    Parameters that a rank never touches contribute zeros. Do not set gradients to None.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self._buckets: list[Tensor] = []
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
        for bucket in self._buckets:
            bucket.zero_()

    def sum_over_ranks(self) -> None:
        """Adds up all ranks' gradients, on every rank."""
        if dist.get_world_size() == 1:
            return
        works = [dist.all_reduce(bucket, async_op=True) for bucket in self._buckets]
        for work in works:
            if work is not None:
                work.wait()

    def _add(self, parameters: list[nn.Parameter]) -> None:
        first = parameters[0]
        total = sum(parameter.numel() for parameter in parameters)
        bucket = torch.zeros(total, dtype=first.dtype, device=first.device)
        parts = torch.split(bucket, [parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        self._buckets.append(bucket)
