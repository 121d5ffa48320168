"""The moving average of the weights, kept where the weights are updated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Ema:
    """Average over the steps: decay times the old value plus the rest of the new one.

    Args:
        weights: the parts of the weights that this rank updates; the average starts at them.
        decay: share of the old value.
    """

    def __init__(self, weights: Sequence[Tensor], decay: float) -> None:
        self.decay = decay
        self.values = [weight.detach().float().clone() for weight in weights]

    @torch.no_grad()
    def update(self, weights: Sequence[Tensor]) -> None:
        """Takes in the weights after a step."""
        for value, weight in zip(self.values, weights, strict=True):
            value.lerp_(weight.detach().float(), 1 - self.decay)
