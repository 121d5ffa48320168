"""Ulysses sequence parallelism whose group changes from task to task.

Each rank of a group holds a window of the tokens. Around attention one all-to-all trades tokens
for heads, so that each rank sees all tokens of its share of the heads, and another trades back.
Windows may differ in size by a token; only the heads must divide by the degree.

Shape suffixes: B clips, N all tokens, n tokens of this rank, H heads, h heads of this rank,
D features of a head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from arachne_opt.errors import RunError


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The tokens that this rank holds in the task at hand.

    Args:
        counts: tokens of each rank of the group, in the order of the ranks.
        index: this rank's place in the group.
        group: process group; None where the rank is alone.
    """

    counts: tuple[int, ...]
    index: int = 0
    group: dist.ProcessGroup | None = None

    @property
    def degree(self) -> int:
        """Number of ranks."""
        return len(self.counts)

    @property
    def own(self) -> slice:
        """This rank's tokens among all."""
        stop = list(accumulate(self.counts))[self.index]
        return slice(stop - self.counts[self.index], stop)


def split_tokens(tokens: int, degree: int) -> tuple[int, ...]:
    """Tokens per rank: as even as can be, the first ranks hold one more."""
    share, more = divmod(tokens, degree)
    return tuple(share + (index < more) for index in range(degree))


# A rank runs one task at a time. A context variable would not do: with checkpointed activations
# autograd runs the forward again, on threads of its own.
_active: list[Window] = []


@contextmanager
def active(window: Window) -> Iterator[Window]:
    """Makes attention use a window; covers the backward pass, too."""
    _active.append(window)
    try:
        yield window
    finally:
        _active.pop()


def active_window() -> Window | None:
    """The window of the task at hand, None outside of any."""
    return _active[-1] if _active else None


def attention(query_BnHD: Tensor, key_BnHD: Tensor, value_BnHD: Tensor) -> Tensor:
    """Attention of this rank's tokens to all tokens of the group: (B, n, H, D)."""
    window = active_window()
    if window is None or window.degree == 1:
        return _plain_attention(query_BnHD, key_BnHD, value_BnHD)
    stacked = torch.stack((query_BnHD, key_BnHD, value_BnHD))
    query, key, value = _exchange(stacked, window, to_heads=True).unbind(0)
    return _exchange(_plain_attention(query, key, value), window, to_heads=False)


def _plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def _exchange(x: Tensor, window: Window, *, to_heads: bool) -> Tensor:
    result: Tensor = _Exchange.apply(x, window, to_heads)  # type: ignore[no-untyped-call]  # torch's stub
    return result


class _Exchange(torch.autograd.Function):
    """Trades tokens for heads or back; each direction is the other's gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window, to_heads: bool) -> Tensor:  # noqa: ANN401 - torch's context
        ctx.window, ctx.to_heads = window, to_heads
        return _tokens_to_heads(x, window) if to_heads else _heads_to_tokens(x, window)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401 - torch's context
        turn = _heads_to_tokens if ctx.to_heads else _tokens_to_heads
        return turn(grad, ctx.window), None, None


def _tokens_to_heads(x: Tensor, window: Window) -> Tensor:
    """(..., n, H, D) of this rank's tokens to (..., N, h, D) of its heads."""
    *lead, tokens, heads, size = x.shape
    own = window.counts[window.index]
    if tokens != own or heads % window.degree:
        what = f"attention got {tokens} tokens and {heads} heads, the plan says {own} tokens"
        raise RunError(f"{what} on this rank and a degree of {window.degree}")
    share = heads // window.degree
    by_rank = x.reshape(*lead, own, window.degree, share, size).movedim(-3, 0).contiguous()
    each = by_rank[0].numel()
    received = [each // own * count for count in window.counts]
    flat = _all_to_all(by_rank, [each] * window.degree, received, window)
    parts = [
        part.view(*lead, count, share, size)
        for part, count in zip(torch.split(flat, received), window.counts, strict=True)
    ]
    return torch.cat(parts, dim=-3)


def _heads_to_tokens(x: Tensor, window: Window) -> Tensor:
    """(..., N, h, D) of this rank's heads to (..., n, H, D) of its tokens."""
    *lead, tokens, share, size = x.shape
    if tokens != sum(window.counts):
        raise RunError(f"attention gave {tokens} tokens, the plan has {sum(window.counts)}")
    parts = [part.reshape(-1) for part in torch.split(x, list(window.counts), dim=-3)]
    own = window.counts[window.index]
    each = parts[window.index].numel()
    sent = [part.numel() for part in parts]
    flat = _all_to_all(torch.cat(parts), sent, [each] * window.degree, window)
    by_rank = flat.view(window.degree, *lead, own, share, size)
    return by_rank.movedim(0, -3).flatten(-3, -2)


def _all_to_all(
    data: Tensor, sent: Sequence[int], received: Sequence[int], window: Window
) -> Tensor:
    """One all-to-all of a flat buffer; the sizes are the plan's, the same on every rank."""
    result = data.new_empty(sum(received))
    dist.all_to_all_single(result, data.view(-1), list(received), list(sent), group=window.group)
    return result
