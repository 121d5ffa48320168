"""A mixture of experts: a router, the experts, and a seam where tokens travel to other ranks.

Shapes: n tokens of all samples, K experts of a token, E experts, r = n K visits, H hidden, F inner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from arachne_opt.executor.pipeline.models.blocks import FeedForward, activate
from arachne_opt.executor.pipeline.models.spec import DecoderSpec

# Runs visits, sorted by expert, through the experts that are held here: (visits, visits of each).
Run = Callable[[Tensor, Tensor], Tensor]


class Exchange(Protocol):
    """Brings visits to the ranks that hold their experts and the results back."""

    def __call__(self, visits_rH: Tensor, counts_E: Tensor, run: Run) -> Tensor:
        """Results in the order of ``visits_rH``, which are sorted by expert.

        Args:
            visits_rH: inputs, those of expert 0 first.
            counts_E: visits of every expert of the layer.
            run: takes visits sorted by the experts held here, and how many each of those has.
        """


def stay(visits_rH: Tensor, counts_E: Tensor, run: Run) -> Tensor:
    """The exchange of a rank that holds all experts."""
    return run(visits_rH, counts_E)


class Experts(nn.Module):
    """The experts that a rank holds, each a part of the three matrices."""

    gate: nn.Parameter | None

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        assert spec.experts is not None  # only sparse rows have them
        count, width = spec.experts.count, spec.experts.width
        gate = nn.Parameter(torch.empty(count, width, spec.hidden)) if spec.gated else None
        self.register_parameter("gate", gate)
        self.up = nn.Parameter(torch.empty(count, width, spec.hidden))
        self.down = nn.Parameter(torch.empty(count, spec.hidden, width))
        self.activation = spec.activation
        self.enter: nn.Module = nn.Identity()
        self.leave: nn.Module = nn.Identity()

    def forward(self, visits_rH: Tensor, counts: Tensor) -> Tensor:
        """Results of visits that are sorted by expert; an expert without visits gets zeros."""
        parts = self.enter(visits_rH).split(counts.tolist())
        out_rH: Tensor = self.leave(torch.cat([self._one(e, x) for e, x in enumerate(parts)]))
        return out_rH

    def _one(self, expert: int, x_rH: Tensor) -> Tensor:
        inner_rF = functional.linear(x_rH, self.up[expert])
        if self.gate is None:
            inner_rF = activate(self.activation, inner_rF)
        else:
            gate_rF = functional.linear(x_rH, self.gate[expert])
            inner_rF = activate(self.activation, gate_rF) * inner_rF
        return functional.linear(inner_rF, self.down[expert])


class SparseFeedForward(nn.Module):
    """Sends each token to its best experts and adds their results by the router's shares.

    Attributes:
        exchange: replaced where experts are spread over ranks.
        balance: weight of the load-balance loss; 0 for none. Set by ``weigh_balance``.
    """

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        assert spec.experts is not None  # only sparse rows have them
        self.top_k, self.share_weights = spec.experts.top_k, spec.share_weights
        self.router = nn.Linear(spec.hidden, spec.experts.count, bias=False)
        self.experts = Experts(spec)
        shared = spec.experts.shared * spec.experts.width
        self.shared = FeedForward(spec, shared) if shared else None
        self.exchange: Exchange = stay
        self.balance = 0.0

    def forward(self, x_BTH: Tensor) -> Tensor:
        """Each token by its experts, and by the shared ones."""
        x_nH = x_BTH.flatten(0, 1)
        chance_nE = functional.softmax(self.router(x_nH).float(), dim=-1)
        share_nK, chosen_nK = chance_nE.topk(self.top_k, dim=-1)
        if self.share_weights:
            share_nK = share_nK / share_nK.sum(-1, keepdim=True)
        if self.balance:
            samples = x_BTH.shape[0]
            loss = balance_loss(chance_nE.view(samples, -1, chance_nE.shape[-1]), chosen_nK)
            share_nK = _AddLoss.apply(share_nK, self.balance * loss)  # type: ignore[no-untyped-call]  # torch's stub
        out_nH = self._visit(x_nH, chosen_nK, share_nK.to(x_nH.dtype))
        if self.shared is not None:
            out_nH = out_nH + self.shared(x_nH)
        return out_nH.view_as(x_BTH)

    def _visit(self, x_nH: Tensor, chosen_nK: Tensor, share_nK: Tensor) -> Tensor:
        order_r = chosen_nK.flatten().argsort(stable=True)
        counts_E = torch.bincount(chosen_nK.flatten(), minlength=self.router.out_features)
        visits_rH = x_nH[order_r // self.top_k]
        out_rH = self.exchange(visits_rH, counts_E, self.experts)
        back_nKH = out_rH[order_r.argsort()].view(-1, self.top_k, x_nH.shape[-1])
        mixed_nH: Tensor = (back_nKH * share_nK.unsqueeze(-1)).sum(1)
        return mixed_nH


def balance_loss(chance_BTE: Tensor, chosen_nK: Tensor) -> Tensor:
    """How uneven the experts' load is, sample by sample, as a sum over tokens.

    T E/(K T) Σ_e visits_e · mean chance_e of each sample (DeepSeek-AI, DeepSeek-V3, 2024, eq. 17 to
    20). A sum over samples, so that it does not depend on how they are spread over ranks.
    """
    samples, tokens, experts = chance_BTE.shape
    top_k = chosen_nK.shape[-1]
    hit = functional.one_hot(chosen_nK, experts).sum(1).view(samples, tokens, experts)
    share_BE = hit.sum(1) * (experts / (top_k * tokens))
    loss: Tensor = tokens * (share_BE * chance_BTE.mean(1)).sum()
    return loss


def weigh_balance(row: nn.Module, weight: float) -> None:
    """Adds ``weight`` times the load-balance loss of a row to whatever is differentiated.

    With a loss that is summed over tokens and divided by their number in the whole global batch,
    ``weight`` is the coefficient over that number. The loss that is reported does not have it.
    """
    for module in row.modules():
        if isinstance(module, SparseFeedForward):
            module.balance = weight


class _AddLoss(torch.autograd.Function):
    """Passes values on; in the backward a loss beside them gets the gradient 1."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, loss: Tensor) -> Tensor:  # noqa: ANN401 - torch's own
        ctx.loss_like = loss
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        return gradient, torch.ones_like(ctx.loss_like)
