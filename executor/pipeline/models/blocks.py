"""The parts of a row in plain torch, written so that a rank can hold a part of every matrix.

Shapes: B samples, T tokens, H hidden, N heads, D width of a head, V vocabulary.

*Seams* are where a tensor-parallel rank talks to its group: ``enter`` before the first cut matrix
(identity; its gradients are summed over the group) and ``leave`` after the last one (sums over the
group; gradients pass). They are identities here, and whoever cuts the matrices puts modules of its
own in their place. Biases behind a seam are whole, so that they are added once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.spec import DecoderSpec, Rotary


class RmsNorm(nn.Module):
    """Divides by the root of the mean square, in fp32, and scales."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x_BTH: Tensor) -> Tensor:
        """The normed values in the type of the input."""
        wide = x_BTH.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x_BTH.dtype)


def make_norm(spec: DecoderSpec) -> nn.Module:
    """The norm of a family."""
    if spec.norm == "rms":
        return RmsNorm(spec.hidden, spec.norm_epsilon)
    return nn.LayerNorm(spec.hidden, eps=spec.norm_epsilon)


def activate(name: str, x: Tensor) -> Tensor:
    """An activation by its name in the spec."""
    if name == "gelu":
        return functional.gelu(x)
    if name == "gelu_tanh":
        return functional.gelu(x, approximate="tanh")
    return functional.silu(x) if name == "silu" else functional.relu(x)


class WordTable(nn.Module):
    """Looks up words; a rank may hold the rows from ``first`` of a cut table.

    Others count as zeros, which ``leave`` adds up.
    """

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, width))
        self.words = words
        self.first = 0
        self.leave: nn.Module = nn.Identity()

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Embeddings (B, T, width)."""
        held = self.weight.shape[0]
        if held == self.words:
            return functional.embedding(ids_BT, self.weight)
        inside_BT = (ids_BT >= self.first) & (ids_BT < self.first + held)
        # A table may be empty: it still takes part in the sum.
        near_BT = torch.where(inside_BT, ids_BT - self.first, 0)
        table = self.weight if held else self.weight.new_zeros(1, self.weight.shape[1])
        found = functional.embedding(near_BT, table) * inside_BT.unsqueeze(-1)
        summed: Tensor = self.leave(found)
        return summed


class Attention(nn.Module):
    """Causal self-attention over whole heads, as many as its matrices hold."""

    output_bias: nn.Parameter | None

    def __init__(self, spec: DecoderSpec, row: int) -> None:
        super().__init__()
        self.head_width, self.scale = spec.head_width, spec.attention_scale
        self.window = spec.window(row)
        self.rotary = None if spec.positions else spec.rotary
        wide, narrow = spec.heads * spec.head_width, spec.kv_heads * spec.head_width
        self.query = nn.Linear(spec.hidden, wide, bias=spec.input_bias)
        self.key = nn.Linear(spec.hidden, narrow, bias=spec.input_bias)
        self.value = nn.Linear(spec.hidden, narrow, bias=spec.input_bias)
        self.output = nn.Linear(wide, spec.hidden, bias=False)
        bias = nn.Parameter(torch.zeros(spec.hidden)) if spec.output_bias else None
        self.register_parameter("output_bias", bias)
        self.enter: nn.Module = nn.Identity()
        self.leave: nn.Module = nn.Identity()

    def forward(self, x_BTH: Tensor) -> Tensor:
        """What each token takes from those up to it."""
        x_BTH = self.enter(x_BTH)
        q_BNTD, k_BNTD, v_BNTD = (
            part(x_BTH).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        if self.rotary is not None:
            q_BNTD, k_BNTD = turn(q_BNTD, self.rotary), turn(k_BNTD, self.rotary)
        shared = q_BNTD.shape[1] // k_BNTD.shape[1]
        if shared > 1:
            k_BNTD = k_BNTD.repeat_interleave(shared, dim=1)
            v_BNTD = v_BNTD.repeat_interleave(shared, dim=1)
        mask = self._mask(x_BTH)
        mixed_BNTD = functional.scaled_dot_product_attention(
            q_BNTD, k_BNTD, v_BNTD, attn_mask=mask, is_causal=mask is None, scale=self.scale
        )
        out_BTH: Tensor = self.leave(self.output(mixed_BNTD.transpose(1, 2).flatten(-2)))
        return out_BTH if self.output_bias is None else out_BTH + self.output_bias

    def _mask(self, x_BTH: Tensor) -> Tensor | None:
        """Which tokens see which, where a window cuts; None for all before."""
        tokens = x_BTH.shape[1]
        if not 0 < self.window < tokens:
            return None
        place_T = torch.arange(tokens, device=x_BTH.device)
        back_TT = place_T.unsqueeze(1) - place_T
        return (back_TT >= 0) & (back_TT < self.window)


class FeedForward(nn.Module):
    """Two matrices, or three with a gate."""

    down_bias: nn.Parameter | None

    def __init__(self, spec: DecoderSpec, width: int) -> None:
        super().__init__()
        self.activation = spec.activation
        gate = nn.Linear(spec.hidden, width, bias=spec.ffn_bias) if spec.gated else None
        self.gate = gate
        self.up = nn.Linear(spec.hidden, width, bias=spec.ffn_bias)
        self.down = nn.Linear(width, spec.hidden, bias=False)
        bias = nn.Parameter(torch.zeros(spec.hidden)) if spec.ffn_bias else None
        self.register_parameter("down_bias", bias)
        self.enter: nn.Module = nn.Identity()
        self.leave: nn.Module = nn.Identity()

    def forward(self, x_BTH: Tensor) -> Tensor:
        """Each token by itself."""
        x_BTH = self.enter(x_BTH)
        inner = self.up(x_BTH)
        if self.gate is None:
            inner = activate(self.activation, inner)
        else:
            inner = activate(self.activation, self.gate(x_BTH)) * inner
        out_BTH: Tensor = self.leave(self.down(inner))
        return out_BTH if self.down_bias is None else out_BTH + self.down_bias


def turn(x_BNTD: Tensor, rotary: Rotary) -> Tensor:
    """Turns queries or keys by their positions, counted from 0."""
    width = int(x_BNTD.shape[-1] * rotary.share)
    angle_TD = _angles(x_BNTD.shape[2], width, rotary, x_BNTD.device)
    cos_TD, sin_TD = angle_TD.cos().to(x_BNTD.dtype), angle_TD.sin().to(x_BNTD.dtype)
    turned, rest = x_BNTD[..., :width], x_BNTD[..., width:]
    low, high = turned.chunk(2, dim=-1)
    turned = turned * cos_TD + torch.cat((-high, low), dim=-1) * sin_TD
    return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned


def _angles(tokens: int, width: int, rotary: Rotary, device: torch.device) -> Tensor:
    """Angles (T, width), the frequencies once for either half of the width."""
    steps = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    frequency = 1.0 / rotary.base ** (steps / width)
    if rotary.kind == "linear":
        frequency = frequency / rotary.factor
    elif rotary.kind == "llama3":
        frequency = _stretch(frequency, rotary)
    place_T = torch.arange(tokens, dtype=torch.float32, device=device)
    half = place_T.unsqueeze(1) * frequency
    return torch.cat((half, half), dim=-1)


def _stretch(frequency: Tensor, rotary: Rotary) -> Tensor:
    """Slow frequencies divided by the factor, fast ones kept, a blend between (Llama 3.1)."""
    turns = rotary.original * frequency / (2 * math.pi)
    kept = ((turns - rotary.low) / (rotary.high - rotary.low)).clamp(0, 1)
    return frequency * (kept + (1 - kept) / rotary.factor)


def refuse_long(tokens: int, positions: int, name: str) -> None:
    """Refuses samples with more tokens than the model has positions."""
    if tokens > positions:
        what = f"a sample of {tokens} tokens for the {positions} positions of {name}"
        raise InputError(what, hint=f"--sequence-length {positions}")
