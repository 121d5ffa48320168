"""Encodes a micro-batch over a group: whole clips and spatial tiles are shared out.

How a clip is cut into tiles depends on its shape only, so the latents are the same at every
degree. The cut and the blending are those of diffusers' tiled encoders: tiles overlap, and each
fades into the next. Frames are not shared out: the VAEs are causal in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.pixels import load_pixels
from arachne_opt.workload import Clip, MicroBatch, Shape

PixelSource = Callable[[Clip, Shape], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A part of the frames, in pixels."""

    top: int
    left: int
    height: int
    width: int

    @property
    def area(self) -> int:
        """Pixels of one frame."""
        return self.height * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One tile of one clip: what a rank encodes in one go."""

    clip: int
    tile: Tile
    owner: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A rank's place in the group that works on a task."""

    index: int = 0
    degree: int = 1
    group: dist.ProcessGroup | None = None


def tile_rows(config: ModelConfig, shape: Shape) -> tuple[tuple[Tile, ...], ...]:
    """The tiles of a clip, row by row; a single one where no edge is longer than a tile."""
    if max(shape.height, shape.width) <= config.tile:
        return ((Tile(top=0, left=0, height=shape.height, width=shape.width),),)
    return tuple(
        tuple(
            Tile(
                top=top,
                left=left,
                height=min(config.tile, shape.height - top),
                width=min(config.tile, shape.width - left),
            )
            for left in range(0, shape.width, config.tile_stride)
        )
        for top in range(0, shape.height, config.tile_stride)
    )


def share_out(config: ModelConfig, shape: Shape, clips: int, degree: int) -> tuple[Piece, ...]:
    """All pieces of a micro-batch with their owners: the largest first to who has least to do."""
    tiles = [tile for row in tile_rows(config, shape) for tile in row]
    pieces = [(clip, tile) for clip in range(clips) for tile in tiles]
    order = sorted(range(len(pieces)), key=lambda i: -pieces[i][1].area)
    load, owner = [0] * degree, [0] * len(pieces)
    for i in order:
        owner[i] = min(range(degree), key=load.__getitem__)
        load[owner[i]] += pieces[i][1].area
    return tuple(
        Piece(clip=clip, tile=tile, owner=owner[i]) for i, (clip, tile) in enumerate(pieces)
    )


def encode_batch(
    adapter: VideoAdapter, batch: MicroBatch, member: Member, *, pixels: PixelSource = load_pixels
) -> Tensor:
    """Latents (B, C, T, H, W) of all clips, on every rank of the group.

    Args:
        adapter: the model.
        batch: the micro-batch.
        member: this rank's place in the group.
        pixels: gives a clip at a shape; called for clips of which this rank encodes a part.

    Raises:
        InputError: a clip's file cannot be used.
    """
    config, shape = adapter.config, batch.shape
    pieces = share_out(config, shape, batch.size, member.degree)
    own = _encode_own(adapter, batch, [p for p in pieces if p.owner == member.index], pixels)
    sizes = [_latent_size(config, shape, piece.tile) for piece in pieces]
    encoded = _gather(own, pieces, sizes, member, adapter.device)
    columns = len(tile_rows(config, shape)[0])
    per_clip = len(pieces) // batch.size
    clips = []
    for clip in range(batch.size):
        tiles = encoded[clip * per_clip : (clip + 1) * per_clip]
        rows = [tiles[i : i + columns] for i in range(0, per_clip, columns)]
        clips.append(_blend(rows, config))
    return torch.stack(clips)


def _encode_own(
    adapter: VideoAdapter, batch: MicroBatch, pieces: Sequence[Piece], source: PixelSource
) -> list[Tensor]:
    results: list[Tensor] = []
    loaded, pixels = -1, torch.empty(0)
    for piece in pieces:  # clip by clip
        if piece.clip != loaded:
            pixels = torch.empty(0)  # the clip before gives its memory back first
            loaded, pixels = piece.clip, source(batch.clips[piece.clip], batch.shape)
        t = piece.tile
        part = pixels[:, :, t.top : t.top + t.height, t.left : t.left + t.width]
        results.append(adapter.encode(part.unsqueeze(0).to(adapter.device))[0])
    return results


def _latent_size(config: ModelConfig, shape: Shape, tile: Tile) -> tuple[int, int, int, int]:
    frames = config.latent_size(shape)[0]
    factor = config.spatial_factor
    return config.carried_channels, frames, tile.height // factor, tile.width // factor


def _gather(
    own: list[Tensor],
    pieces: Sequence[Piece],
    sizes: Sequence[tuple[int, int, int, int]],
    member: Member,
    device: torch.device,
) -> list[Tensor]:
    """All pieces in order; what each rank sends is padded to the longest, as gloo demands."""
    if member.degree == 1:
        return own
    numbers = [torch.Size(size).numel() for size in sizes]
    totals = [0] * member.degree
    for piece, number in zip(pieces, numbers, strict=True):
        totals[piece.owner] += number
    sent = torch.zeros(max(totals), device=device)
    if own:
        sent[: totals[member.index]] = torch.cat([latents.reshape(-1) for latents in own])
    received = [torch.empty_like(sent) for _ in totals]
    dist.all_gather(received, sent, group=member.group)
    offsets = [0] * member.degree
    results = []
    for piece, number, size in zip(pieces, numbers, sizes, strict=True):
        start = offsets[piece.owner]
        offsets[piece.owner] = start + number
        results.append(received[piece.owner][start : start + number].view(size))
    return results


def _blend(rows: list[list[Tensor]], config: ModelConfig) -> Tensor:
    """One clip's latents (C, T, H, W): each tile fades in from the one above and the one left."""
    if len(rows) == 1 and len(rows[0]) == 1:
        return rows[0][0]
    kept = config.tile_stride // config.spatial_factor
    overlap = config.tile // config.spatial_factor - kept
    result_rows = []
    for i, row in enumerate(rows):
        for j, tile in enumerate(row):
            if i > 0:
                _fade(rows[i - 1][j], tile, overlap, dim=-2)
            if j > 0:
                _fade(row[j - 1], tile, overlap, dim=-1)
        result_rows.append(torch.cat([tile[..., :kept, :kept] for tile in row], dim=-1))
    return torch.cat(result_rows, dim=-2)


def _fade(before: Tensor, after: Tensor, overlap: int, *, dim: int) -> None:
    """Mixes the end of one tile into the start of the next, in place and linearly."""
    size = min(before.shape[dim], after.shape[dim], overlap)
    if size == 0:
        return
    share = torch.arange(size, device=after.device) / size
    share = share.unsqueeze(-1) if dim == -2 else share
    start = after.narrow(dim, 0, size)
    end = before.narrow(dim, before.shape[dim] - size, size)
    start.copy_(end * (1 - share) + start * share)
