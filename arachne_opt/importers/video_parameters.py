"""Parameters of video diffusion transformers, counted from their sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WanSizes:
    """A Wan transformer; widths of parts that are not there are 0."""

    layers: int
    width: int
    ffn: int
    patch: tuple[int, int, int]
    in_channels: int
    out_channels: int
    text_width: int
    frequencies: int
    cross_norm: bool = True
    image_width: int = 0
    added_keys: int = 0
    image_positions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CogVideoXSizes:
    """A CogVideoX transformer; what it learns of positions are no parameters in diffusers."""

    layers: int
    width: int
    head_dim: int
    patch: tuple[int, int, int]
    in_channels: int
    out_channels: int
    text_width: int
    time_width: int
    ofs_width: int = 0
    attention_bias: bool = True
    patch_bias: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HunyuanSizes:
    """A HunyuanVideo transformer: ``layers`` with two streams, then ``single_layers`` with one."""

    layers: int
    single_layers: int
    refiner_layers: int
    width: int
    head_dim: int
    ffn: int
    patch: tuple[int, int, int]
    in_channels: int
    out_channels: int
    text_width: int
    pooled_width: int
    guidance: bool = True


def wan(s: WanSizes) -> int:
    """Self- and cross-attention with norms over all heads, feed-forward, six shifts and scales."""
    d = s.width
    attention = 4 * _linear(d, d) + 2 * d
    added = 2 * _linear(s.added_keys, d) + d if s.added_keys else 0
    block = 2 * attention + added + _feed_forward(d, s.ffn) + 6 * d
    block += 2 * d if s.cross_norm else 0
    time = _embedding(s.frequencies, d) + _linear(d, 6 * d)
    image = 0
    if s.image_width:
        image = 2 * s.image_width + _linear(s.image_width, s.image_width)
        image += _linear(s.image_width, d) + 2 * d + s.image_positions * s.image_width
    token = math.prod(s.patch)
    ends = _linear(s.in_channels * token, d) + _linear(d, s.out_channels * token) + 2 * d
    return s.layers * block + time + _embedding(s.text_width, d) + image + ends


def cogvideox(s: CogVideoXSizes) -> int:
    """One attention for text and video; norms that the time shifts, scales and gates."""
    d, token = s.width, math.prod(s.patch)
    norm = _linear(s.time_width, 6 * d) + 2 * d
    attention = 3 * _linear(d, d, bias=s.attention_bias) + _linear(d, d) + 4 * s.head_dim
    block = 2 * norm + attention + _feed_forward(d, 4 * d)
    patch = _linear(s.in_channels * token, d, bias=s.patch_bias) + _linear(s.text_width, d)
    time = _embedding(d, s.time_width)
    time += _embedding(s.ofs_width, s.ofs_width) if s.ofs_width else 0
    ends = 2 * d + _linear(s.time_width, 2 * d) + 2 * d + _linear(d, s.out_channels * token)
    return s.layers * block + patch + time + ends


def hunyuan(s: HunyuanSizes) -> int:
    """Blocks with two streams, blocks with one, and a refiner of the text."""
    d, token = s.width, math.prod(s.patch)
    both = 2 * _linear(d, 6 * d) + 8 * _linear(d, d) + 4 * s.head_dim + 2 * _feed_forward(d, s.ffn)
    one = _linear(d, 3 * d) + 3 * _linear(d, d) + 2 * s.head_dim
    one += _linear(d, s.ffn) + _linear(d + s.ffn, d)
    refiner = 4 * d + 4 * _linear(d, d) + _feed_forward(d, 4 * d) + _linear(d, 2 * d)
    text = _embedding(_FREQUENCIES, d) + _embedding(s.text_width, d) + _linear(s.text_width, d)
    time = (2 if s.guidance else 1) * _embedding(_FREQUENCIES, d) + _embedding(s.pooled_width, d)
    ends = (
        _linear(s.in_channels * token, d) + _linear(d, 2 * d) + _linear(d, s.out_channels * token)
    )
    blocks = s.layers * both + s.single_layers * one + s.refiner_layers * refiner
    return blocks + text + time + ends


_FREQUENCIES = 256  # of a time step


def _linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return inputs * outputs + (outputs if bias else 0)


def _feed_forward(width: int, inner: int) -> int:
    return _linear(width, inner) + _linear(inner, width)


def _embedding(inputs: int, width: int) -> int:
    """Two layers, such as those of a time step."""
    return _linear(inputs, width) + _linear(width, width)
