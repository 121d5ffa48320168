"""Latents to tokens and back.

Shape suffixes: B clips, C channels, T H W latents in time, height and width, N tokens, P values
of a token in the order (time, height, width, channel) of its patch.
"""

from __future__ import annotations

from torch import Tensor

Patch = tuple[int, int, int]


def patchify(latents_BCTHW: Tensor, patch: Patch) -> Tensor:
    """Tokens (B, N, P) of latents."""
    b, c, t, h, w = latents_BCTHW.shape
    pt, ph, pw = patch
    x = latents_BCTHW.reshape(b, c, t // pt, pt, h // ph, ph, w // pw, pw)
    return x.permute(0, 2, 4, 6, 3, 5, 7, 1).reshape(b, -1, pt * ph * pw * c)


def unpatchify(tokens_BNP: Tensor, grid: Patch, patch: Patch) -> Tensor:
    """Latents (B, C, T, H, W) of tokens on a grid."""
    b, (t, h, w), (pt, ph, pw) = tokens_BNP.shape[0], grid, patch
    x = tokens_BNP.reshape(b, t, h, w, pt, ph, pw, -1)
    return x.permute(0, 7, 1, 4, 2, 5, 3, 6).reshape(b, -1, t * pt, h * ph, w * pw)
