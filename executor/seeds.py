"""Random numbers that depend on the clip and the step, never on the rank or the plan."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


def generator(*words: object) -> torch.Generator:
    """A generator on the CPU, seeded by the words; the same on every machine and device."""
    text = "\x1f".join(map(str, words)).encode()
    number = int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
    return torch.Generator().manual_seed(number)


def clip_noise(seed: int, clip: str, step: int, size: Sequence[int]) -> Tensor:
    """Normal noise for the latents of one clip at one step."""
    return torch.randn(tuple(size), generator=generator("noise", seed, clip, step))


def clip_timestep(seed: int, clip: str, step: int) -> float:
    """Uniform time in [0, 1) of one clip at one step: 0 is the clean clip, 1 is noise."""
    return torch.rand((), generator=generator("timestep", seed, clip, step)).item()


def clip_text(clip: str, tokens: int, length: int, features: int) -> Tensor:
    """Stand-in for a text encoder's output, (length, features): cut or padded with zeros.

    It does not change from step to step: a clip keeps its caption.
    """
    kept = min(tokens, length)
    text = torch.zeros(length, features)
    text[:kept] = torch.randn(kept, features, generator=generator("text", clip))
    return text


def clip_extra(clip: str, name: str, size: Sequence[int]) -> Tensor:
    """Stand-in for a further embedding of one clip, such as that of its first frame."""
    return torch.randn(tuple(size), generator=generator("extra", name, clip))


def clip_pixels(clip: str, size: Sequence[int]) -> Tensor:
    """Stand-in for decoded frames, uniform in [-1, 1)."""
    return torch.rand(tuple(size), generator=generator("pixels", clip)) * 2 - 1
