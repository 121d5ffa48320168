"""Puts a rank's parts of the parameters into a row, and its group's sums into the row's seams.

Own column and row parallelism instead of ``parallelize_module``: DTensor's styles cut matrices
into even parts of single entries by one mesh, and a plan needs more: heads that are never cut, keys
and values that several ranks share where tp exceeds their heads, experts that are cut by both of
two groups, vocabularies that no degree divides, and the same parameter cut by another degree in
another replica (``cells`` sums their gradients). A test holds both against each other where both
can run.

Shape suffixes: r visits of tokens to experts, H hidden, E experts, e those held here, n ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.executor.pipeline.models.blocks import Attention, FeedForward, WordTable
from arachne_opt.executor.pipeline.models.experts import Experts, Run, SparseFeedForward
from arachne_opt.executor.pipeline.models.rows import HeadRow
from arachne_opt.pipeline.cells import Box

Group = dist.ProcessGroup


def keep_parts(row: nn.Module, parts: Mapping[str, Box]) -> None:
    """Cuts the parameters of a whole row down to a rank's parts."""
    for name, box in parts.items():
        path, _, last = name.rpartition(".")
        owner = row.get_submodule(path)
        whole = owner.get_parameter(last)
        where = tuple(slice(*span) for span in box)
        own = whole.detach()[where]
        if own.shape != whole.shape:
            setattr(owner, last, nn.Parameter(own.clone()))
        if isinstance(owner, WordTable):
            owner.first = box[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """A process group whose ranks hold parts.

    Args:
        order: number of the part that each rank of the group holds, in the group's order.
    """

    group: Group
    order: tuple[int, ...]


def join_group(
    row: nn.Module, vocabulary: int, members: Company | None, experts: Company | None
) -> None:
    """Connects the seams of a row.

    Args:
        row: with its parts.
        vocabulary: words of the whole model.
        members: the tensor-parallel group; None for a rank alone.
        experts: the group that spreads the experts; None where each rank holds all.
    """
    for module in row.modules():
        if members is not None:
            _join(module, vocabulary, members)
        if experts is not None and isinstance(module, SparseFeedForward):
            module.exchange = TokenExchange(experts)


def _join(module: nn.Module, vocabulary: int, members: Company) -> None:
    group = members.group
    if isinstance(module, Attention | FeedForward | Experts):
        module.enter, module.leave = Enter(group), Leave(group)
    elif isinstance(module, WordTable):
        module.leave = Leave(group)
    elif isinstance(module, HeadRow):
        module.enter = Enter(group)
        module.gather = Gather(members, vocabulary)


class Enter(nn.Module):
    """Passes values on; their gradients are summed over the group."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """The same values."""
        entered: Tensor = _Enter.apply(x, self.group)  # type: ignore[no-untyped-call]  # torch's stub
        return entered


class Leave(nn.Module):
    """Sums values over the group; their gradients pass."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def forward(self, x: Tensor) -> Tensor:
        """The sums."""
        summed: Tensor = _Leave.apply(x, self.group)  # type: ignore[no-untyped-call]  # torch's stub
        return summed


class Gather(nn.Module):
    """Puts the parts of the last axis side by side; gradients go to their parts.

    Args:
        members: hold parts as even as ceilings make them.
        width: of the whole axis.
    """

    def __init__(self, members: Company, width: int) -> None:
        super().__init__()
        self.members = members
        parts = len(members.order)
        wide = -(-width // parts)
        edges = [min(width, n * wide) for n in range(parts + 1)]
        self.widths = [b - a for a, b in pairwise(edges)]

    def forward(self, x: Tensor) -> Tensor:
        """The whole axis."""
        whole: Tensor = _Gather.apply(x, self.members, self.widths)  # type: ignore[no-untyped-call]  # torch's stub
        return whole


class TokenExchange:
    """Sends visits to the ranks that hold their experts, and the results back."""

    def __init__(self, experts: Company) -> None:
        self.group, self.order = experts.group, list(experts.order)
        self.place = [self.order.index(part) for part in range(len(self.order))]

    def __call__(self, visits_rH: Tensor, counts_E: Tensor, run: Run) -> Tensor:
        """Results in the order of the visits."""
        # Sizes travel first: unlike sizes of an all-to-all give garbage without an error.
        away_ne = counts_E.view(len(self.order), -1)
        sent_ne = away_ne[self.order]
        here_ne = torch.empty_like(sent_ne)
        dist.all_to_all_single(here_ne, sent_ne, group=self.group)
        sent, received = sent_ne.sum(1).tolist(), here_ne.sum(1).tolist()
        out_rH = _moved(visits_rH, away_ne.sum(1).tolist(), self.order)
        came_rH = _Exchange.apply(out_rH, self.group, received, sent)  # type: ignore[no-untyped-call]  # torch's stub
        # They come rank by rank, and each rank's by expert.
        experts = torch.arange(here_ne.shape[1], device=counts_E.device).repeat(len(self.order))
        order_r = experts.repeat_interleave(here_ne.flatten()).argsort(stable=True)
        done_rH = run(came_rH[order_r], here_ne.sum(0))[order_r.argsort()]
        back_rH = _Exchange.apply(done_rH, self.group, sent, received)  # type: ignore[no-untyped-call]  # torch's stub
        return _moved(back_rH, sent, self.place)


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:  # noqa: ANN401 - torch's own
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return _summed(gradient, ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:  # noqa: ANN401
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        return gradient, None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, members: Company, widths: list[int]) -> Tensor:  # noqa: ANN401
        own = members.order[dist.get_rank(members.group)]
        ctx.place = sum(widths[:own]), widths[own]
        # Gathering wants equal parts.
        padded = x.new_zeros(*x.shape[:-1], max(widths))
        padded[..., : widths[own]] = x
        parts = [torch.empty_like(padded) for _ in widths]
        dist.all_gather([parts[n] for n in members.order], padded, group=members.group)
        return torch.cat([p[..., :w] for p, w in zip(parts, widths, strict=True)], dim=-1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return gradient.narrow(-1, *ctx.place), None, None


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x_rH: Tensor,
        group: Group,
        received: list[int],
        sent: list[int],
    ) -> Tensor:
        ctx.group, ctx.received, ctx.sent = group, received, sent
        return _traded(x_rH, group, received, sent)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        return _traded(gradient, ctx.group, ctx.sent, ctx.received), None, None, None


def _moved(x_rH: Tensor, sizes: list[int], order: list[int]) -> Tensor:
    """Blocks of the given sizes in another order."""
    if order == sorted(order):
        return x_rH
    blocks = torch.split(x_rH, sizes)
    return torch.cat([blocks[n] for n in order])


def _summed(x: Tensor, group: Group) -> Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total


def _traded(x_rH: Tensor, group: Group, received: list[int], sent: list[int]) -> Tensor:
    out_rH = x_rH.new_empty(sum(received), *x_rH.shape[1:])
    dist.all_to_all_single(out_rH, x_rH.contiguous(), received, sent, group=group)
    return out_rH
