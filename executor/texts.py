"""Texts of a micro-batch encoded over a group, and their way to the ranks that denoise.

Each rank of the group encodes some of the clips' texts; then all have all. A rank that denoises
needs them whole, whatever its tokens: a row per clip holds text, number of tokens and what else
the model wants of a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.encoding import Member
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.workload import Clip, MicroBatch


def text_features(config: ModelConfig) -> int:
    """Values of a clip's row."""
    return config.text_length * config.text_dim + 1 + config.pooled_width


def encode_texts(adapter: VideoAdapter, batch: MicroBatch, member: Member) -> Tensor:
    """A row per clip (B, 1, F), on every rank of the group."""
    width = text_features(adapter.config)
    own = batch.clips[member.index :: member.degree]
    most = -(-batch.size // member.degree)
    rows = torch.zeros(most, width, device=adapter.device)
    for place, clip in enumerate(own):
        rows[place] = _packed(adapter.encode_text(clip.caption), adapter.config)
    if member.degree == 1:
        return rows.unsqueeze(1)
    received = [torch.empty_like(rows) for _ in range(member.degree)]
    dist.all_gather(received, rows, group=member.group)
    # Clip i is row i // k of rank i % k.
    dealt = torch.stack(received, dim=1).flatten(0, 1)
    return dealt[: batch.size].unsqueeze(1)


def unpacked(
    rows_B1F: Tensor, clips: Sequence[Clip], config: ModelConfig
) -> dict[str, Mapping[str, Tensor]]:
    """Embeddings by clip, as files would hold them."""
    found: dict[str, Mapping[str, Tensor]] = {}
    words = config.text_length * config.text_dim
    for clip, row in zip(clips, rows_B1F[:, 0], strict=True):
        count = int(row[words])
        text = row[:words].view(config.text_length, config.text_dim)[:count]
        found[clip.id] = {"text": text.cpu()}
        if config.pooled_width:
            found[clip.id] = {"text": text.cpu(), "pooled": row[words + 1 :].cpu()}
    return found


def _packed(embeddings: Mapping[str, Tensor], config: ModelConfig) -> Tensor:
    text = embeddings["text"][: config.text_length].float()
    row = torch.zeros(text_features(config), device=text.device)
    row[: text.numel()] = text.flatten()
    row[config.text_length * config.text_dim] = len(text)
    if config.pooled_width:
        row[-config.pooled_width :] = embeddings["pooled"].float()
    return row
