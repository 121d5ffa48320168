"""Ulysses sequence parallelism whose group changes from task to task.

Each rank of a group holds a window of the tokens. Around attention one all-to-all trades tokens
for heads, so that each rank sees all tokens of its share of the heads, and another trades back.
Windows may differ in size by a token; only the heads must divide by the degree.

Where text tokens join the video tokens in one attention they are shared out like them: each rank
holds a window of both. Every token is then on one rank only, so that nothing is computed twice and
every gradient counts once.

Shape suffixes: B clips, N all tokens, n tokens of this rank, L text tokens, l those of this rank,
H heads, h heads of this rank, D features of a head.
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
from arachne_opt.executor.distributed import EXCHANGES


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


def own_tokens() -> slice:
    """This rank's tokens in the task at hand; all of them outside of any."""
    window = active_window()
    return window.own if window else slice(None)


def own_text(length: int) -> slice:
    """This rank's share of ``length`` text tokens in the task at hand."""
    window = active_window()
    return _text_window(window, length).own if window else slice(None)


def attention(query_BnHD: Tensor, key_BnHD: Tensor, value_BnHD: Tensor) -> Tensor:
    """Attention of this rank's tokens to all tokens of the group: (B, n, H, D)."""
    window = active_window()
    if window is None or window.degree == 1:
        return _plain_attention(query_BnHD, key_BnHD, value_BnHD)
    return _exchanged(query_BnHD, key_BnHD, value_BnHD, window)


def joint_attention(
    query_BnHD: Tensor,
    key_BnHD: Tensor,
    value_BnHD: Tensor,
    *,
    text: int,
    text_mask_BL: Tensor | None = None,
) -> Tensor:
    """Attention of this rank's video and text tokens to all of the group: (B, n + l, H, D).

    Args:
        query_BnHD: this rank's video tokens, then its text tokens; the same for the others.
        key_BnHD: see above.
        value_BnHD: see above.
        text: text tokens of the whole group.
        text_mask_BL: which text tokens may be attended to; all of them where None.
    """
    window = active_window()
    if window is None or window.degree == 1:
        video = query_BnHD.shape[1] - text
        mask = _key_mask(text_mask_BL, (video,), (text,))
        return _plain_attention(query_BnHD, key_BnHD, value_BnHD, mask)
    texts = _text_window(window, text).counts
    both = tuple(map(sum, zip(window.counts, texts, strict=True)))
    joint = Window(counts=both, index=window.index, group=window.group)
    mask = _key_mask(text_mask_BL, window.counts, texts)
    return _exchanged(query_BnHD, key_BnHD, value_BnHD, joint, mask)


def _text_window(window: Window, length: int) -> Window:
    counts = split_tokens(length, window.degree)
    return Window(counts=counts, index=window.index, group=window.group)


def _key_mask(
    text_mask_BL: Tensor | None, video: Sequence[int], text: Sequence[int]
) -> Tensor | None:
    """Which keys count, in the order in which the ranks' tokens arrive: (B, 1, 1, N + L)."""
    if text_mask_BL is None:
        return None
    masks = zip(video, torch.split(text_mask_BL, list(text), dim=1), strict=True)
    parts = [(part.new_ones(part.shape[0], count), part) for count, part in masks]
    return torch.cat([half for pair in parts for half in pair], dim=1)[:, None, None]


def _exchanged(
    query: Tensor, key: Tensor, value: Tensor, window: Window, mask: Tensor | None = None
) -> Tensor:
    stacked = torch.stack((query, key, value))
    q, k, v = _exchange(stacked, window, to_heads=True).unbind(0)
    return _exchange(_plain_attention(q, k, v, mask), window, to_heads=False)


def _plain_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> Tensor:
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


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
    with EXCHANGES.running():
        dist.all_to_all_single(
            result, data.view(-1), list(received), list(sent), group=window.group
        )
    return result
