"""The rows of a decoder as modules: embedding, blocks, head; and the loss."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.blocks import (
    Attention,
    FeedForward,
    WordTable,
    make_norm,
    refuse_long,
)
from arachne_opt.executor.pipeline.models.experts import SparseFeedForward
from arachne_opt.executor.pipeline.models.parameters import (
    WORDS,
    RowParameter,
    row_parameters,
)
from arachne_opt.executor.pipeline.models.spec import DecoderSpec

# Targets that do not count.
IGNORED = -100

_SPREAD = 0.02


class EmbeddingRow(nn.Module):
    """Token numbers to hidden values."""

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.spec = spec
        self.words = WordTable(spec.vocabulary, spec.embedding_width)
        self.positions = nn.Embedding(spec.positions, spec.hidden) if spec.positions else None
        wide = spec.embedding_width == spec.hidden
        self.project = None if wide else nn.Linear(spec.embedding_width, spec.hidden, bias=False)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Hidden values (B, T, H)."""
        x_BTH: Tensor = self.words(ids_BT)
        if self.project is not None:
            x_BTH = self.project(x_BTH)
        if self.positions is not None:
            first, tokens = self.spec.first_position, ids_BT.shape[1]
            refuse_long(tokens, self.spec.positions - first, self.spec.name)
            x_BTH = x_BTH + self.positions.weight[first : first + tokens]
        return x_BTH


class BlockRow(nn.Module):
    """One layer: attention and a feed-forward part, dense or of experts."""

    def __init__(self, spec: DecoderSpec, row: int) -> None:
        super().__init__()
        self.norm_after, self.parallel = spec.norm_after, spec.parallel
        self.attention_norm = make_norm(spec)
        self.attention = Attention(spec, row)
        self.ffn_norm = make_norm(spec)
        self.ffn: nn.Module = (
            SparseFeedForward(spec) if spec.is_sparse(row) else FeedForward(spec, spec.ffn)
        )

    def forward(self, x_BTH: Tensor) -> Tensor:
        """Hidden values after the layer."""
        if self.norm_after:
            x_BTH = self.attention_norm(x_BTH + self.attention(x_BTH))
            out: Tensor = self.ffn_norm(x_BTH + self.ffn(x_BTH))
            return out
        attended = x_BTH + self.attention(self.attention_norm(x_BTH))
        wide = self.ffn(self.ffn_norm(x_BTH if self.parallel else attended))
        result: Tensor = attended + wide
        return result


class HeadRow(nn.Module):
    """Hidden values to logits.

    Attributes:
        enter: a seam, as in ``blocks``.
        gather: a seam that puts the logits of a cut vocabulary side by side on every rank; each
            rank's gradient is its own part of the gradient of all logits.
    """

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        self.norm = make_norm(spec) if spec.last_norm else None
        wide = spec.embedding_width == spec.hidden
        self.project = None if wide else nn.Linear(spec.hidden, spec.embedding_width, bias=False)
        self.words = nn.Linear(spec.embedding_width, spec.vocabulary, bias=False)
        self.enter: nn.Module = nn.Identity()
        self.gather: nn.Module = nn.Identity()

    def forward(self, x_BTH: Tensor) -> Tensor:
        """Logits (B, T, V)."""
        if self.norm is not None:
            x_BTH = self.norm(x_BTH)
        if self.project is not None:
            x_BTH = self.project(x_BTH)
        logits: Tensor = self.gather(self.words(self.enter(x_BTH)))
        return logits


def build_row(
    spec: DecoderSpec,
    row: int,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    weights: Mapping[str, Tensor] | None = None,
) -> nn.Module:
    """A whole row; its weights depend on the seed, the row and their names alone.

    Args:
        spec: the model.
        row: 0 for the embedding, 1 to ``layers``, ``head_row`` for the head.
        seed: of the random weights.
        device: where it goes; ``meta`` allocates nothing.
        dtype: of the weights.
        weights: those of a checkpoint instead of random ones.

    Raises:
        InputError: no such row, or the weights do not fit it.
    """
    if not 0 <= row < spec.row_count:
        raise InputError(f"row {row} of a model of {spec.row_count} rows", where=spec.name)
    with torch.device("meta"):
        module = _module(spec, row)
    if torch.device(device).type == "meta":
        return module.to(dtype)
    parameters = row_parameters(spec, row)
    if weights is None:
        weights = {p.name: initial_weight(spec, row, p, seed) for p in parameters}
    _check_weights(weights, parameters, f"{spec.name}, row {row}")
    here = {name: value.to(device=device, dtype=dtype) for name, value in weights.items()}
    module.load_state_dict(here, assign=True)
    return module.requires_grad_(True)


def initial_weight(spec: DecoderSpec, row: int, parameter: RowParameter, seed: int) -> Tensor:
    """Random weights of one parameter, in fp32; the copies of tied ones are equal.

    Normal values, narrower for the matrices that end a branch: 0.02 / sqrt(2 layers) (Radford et
    al., Language Models are Unsupervised Multitask Learners, 2019). Scales 1, biases 0.
    """
    if len(parameter.shape) == 1:
        value = 1.0 if parameter.name.endswith("norm.weight") else 0.0
        return torch.full(parameter.shape, value)
    row = 0 if spec.tied and parameter.name == WORDS else row
    text = f"{seed} {row} {parameter.name}".encode()
    generator = torch.Generator().manual_seed(
        int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)
    )
    ends = parameter.name.endswith(("output.weight", "down.weight", "experts.down"))
    spread = _SPREAD / math.sqrt(2 * spec.layers) if ends else _SPREAD
    return torch.empty(parameter.shape).normal_(0.0, spread, generator=generator)


def token_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Cross-entropy summed over tokens, in fp32; targets of -100 do not count."""
    return functional.cross_entropy(
        logits_BTV.float().flatten(0, 1),
        targets_BT.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
    )


def _module(spec: DecoderSpec, row: int) -> nn.Module:
    if row == 0:
        return EmbeddingRow(spec)
    return HeadRow(spec) if row == spec.head_row else BlockRow(spec, row)


def _check_weights(
    weights: Mapping[str, Tensor], parameters: tuple[RowParameter, ...], where: str
) -> None:
    wanted = {p.name: p.shape for p in parameters}
    if missing := sorted(wanted.keys() - weights.keys()):
        raise InputError(f"the weights lack {missing[0]}", where=where)
    if strange := sorted(weights.keys() - wanted.keys()):
        raise InputError(f"the model has no {strange[0]}", where=where)
    for name, shape in wanted.items():
        if tuple(weights[name].shape) != shape:
            what = f"{name} has the shape {tuple(weights[name].shape)}, not {shape}"
            raise InputError(what, where=where)
