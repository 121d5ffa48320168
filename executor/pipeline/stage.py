"""The rows of one rank, and their forward and backward on one micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# Token numbers (B, T) and targets (B, T) of a micro-batch.
Fetch = Callable[[int], tuple[Tensor, Tensor]]
# Sum over tokens of the loss of logits (B, T, V) and targets (B, T).
Loss = Callable[[Tensor, Tensor], Tensor]


class RowChain(nn.Module):
    """Consecutive rows.

    Args:
        rows: as modules.
        recompute: activations inside rows are rebuilt in the backward.
    """

    def __init__(self, rows: Sequence[nn.Module], *, recompute: bool) -> None:
        super().__init__()
        self.rows = nn.ModuleList(rows)
        self.recompute = recompute

    def forward(self, x: Tensor) -> Tensor:
        """Through all rows."""
        for row in self.rows:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(row, x, use_reentrant=False, preserve_rng_state=False)
            else:
                x = row(x)
        return x

    def cut(self, counts: Sequence[int]) -> list[RowChain]:
        """The same rows as several chains of so many rows each."""
        rows, chains, first = list(self.rows), [], 0
        for count in counts:
            chains.append(RowChain(rows[first : first + count], recompute=self.recompute))
            first += count
        return chains


@dataclass(slots=True)
class _Held:
    """What a forward leaves for its backward: its input, and its output or loss."""

    given: Tensor
    result: Tensor


class StageWorker:
    """Computes a stage on micro-batches; gradients add up in the parameters.

    Args:
        chain: the rows of this rank.
        fetch: tokens and targets of this rank's samples; the first and the last stage ask.
        loss: sum over tokens.
        first: the stage embeds.
        last: the stage has the head.
    """

    def __init__(
        self, chain: RowChain, fetch: Fetch, loss: Loss, *, first: bool, last: bool
    ) -> None:
        self.chain, self._fetch, self._loss = chain, fetch, loss
        self._first, self._last = first, last
        self._held: dict[int, _Held] = {}
        self._total = 0.0
        self._tokens = 1.0

    def begin(self, tokens: float) -> None:
        """Starts an iteration.

        Args:
            tokens: that count in the whole global batch; the loss is divided by them.
        """
        assert not self._held  # every forward had its backward
        self._total, self._tokens = 0.0, tokens

    @property
    def loss(self) -> float:
        """This rank's part of the loss of the iteration."""
        return self._total

    def forward(self, microbatch: int, received: Tensor | None) -> Tensor | None:
        """Output for the next stage; None where the loss is taken."""
        given = self._fetch(microbatch)[0] if received is None else received.requires_grad_()
        result = self.chain(given)
        if self._last:
            result = self._loss(result, self._fetch(microbatch)[1]) / self._tokens
            self._total += result.item()
        self._held[microbatch] = _Held(given, result)
        return None if self._last else result.detach()

    def backward(self, microbatch: int, received: Tensor | None) -> Tensor | None:
        """Gradient of what was received in the forward; None in the first stage."""
        held = self._held.pop(microbatch)
        torch.autograd.backward(held.result, received)
        return None if self._first else held.given.grad
