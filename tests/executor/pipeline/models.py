"""Small models of every kind, and what a single process makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from arachne_opt.executor.pipeline.models.experts import weigh_balance
from arachne_opt.executor.pipeline.models.parameters import WORDS, row_parameters
from arachne_opt.executor.pipeline.models.rows import build_row, token_loss
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.pipeline.architecture import ExpertLayers

LLAMA = DecoderSpec(
    name="small-llama",
    family="llama",
    layers=6,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_width=8,
    ffn=48,
    vocabulary=97,
    embedding_width=32,
)
GPT = DecoderSpec(
    name="small-gpt",
    family="gpt2",
    layers=6,
    hidden=32,
    heads=4,
    kv_heads=4,
    head_width=8,
    ffn=64,
    vocabulary=97,
    embedding_width=32,
    positions=24,
    norm="layer",
    activation="gelu_tanh",
    gated=False,
    input_bias=True,
    output_bias=True,
    ffn_bias=True,
    tied=True,
)
MIXTRAL = DecoderSpec(
    name="small-mixtral",
    family="mixtral",
    layers=4,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_width=8,
    ffn=24,
    vocabulary=97,
    embedding_width=32,
    experts=ExpertLayers(count=4, top_k=2, width=24),
)


def whole_model(spec: DecoderSpec, seed: int = 0) -> nn.Sequential:
    """All rows on one process; tied weights are one parameter."""
    rows = nn.Sequential(*(build_row(spec, row, seed=seed) for row in range(spec.row_count)))
    if spec.tied:
        rows[spec.head_row].words.weight = rows[0].words.weight
    return rows


@dataclass(slots=True, kw_only=True)
class Trained:
    """What a single process got: per step the mean loss and, by row and name, the gradients."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[tuple[int, str], Tensor]] = field(default_factory=list)
    parameters: dict[tuple[int, str], Tensor] = field(default_factory=dict)


def train_whole(
    spec: DecoderSpec,
    batches: list[tuple[Tensor, Tensor]],
    *,
    seed: int = 0,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.01,
    clip_norm: float = 0.0,
    balance: float = 0.0,
) -> Trained:
    """Trains one process by (tokens, targets) of a whole global batch per step, with AdamW."""
    model, done = whole_model(spec, seed), Trained()
    decaying, steady = [], []
    for row, module in enumerate(model):
        decays = {p.name: p.decays for p in row_parameters(spec, row)}
        for name, parameter in module.named_parameters():
            if not (spec.tied and row and name == WORDS):
                (decaying if decays[name] else steady).append(parameter)
    groups = [
        {"params": decaying, "weight_decay": weight_decay},
        {"params": steady, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate)
    for tokens, targets in batches:
        optimizer.zero_grad()
        total = int((targets >= 0).sum())
        weigh_balance(model, balance / total)
        loss = token_loss(model(tokens), targets) / total
        loss.backward()
        done.losses.append(loss.item())
        done.gradients.append({key: p.grad.clone() for key, p in _named(model)})
        if clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
    done.parameters = {key: p.detach().clone() for key, p in _named(model)}
    return done


def _named(model: nn.Sequential):
    for row, module in enumerate(model):
        for name, parameter in module.named_parameters():
            yield (row, name), parameter
