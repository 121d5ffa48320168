"""A small video diffusion transformer in plain torch, for machines without diffusers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from arachne_opt.executor.adapters.base import DenoiseBatch, VideoAdapter
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import attention


class ToyAdapter(VideoAdapter):
    """A convolution that turns 4 frames of 8 by 8 pixels into a latent, and a transformer."""

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        super().__init__(choice, device)
        config = self.config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(choice.seed)
            self.vae = _encoder(config).requires_grad_(False).eval().to(device)
            self._toy = ToyTransformer(config).to(device)
        self.transformer = self._toy

    @torch.no_grad()
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents; the first frame is repeated so that 4n+1 frames give n+1 latents."""
        first = pixels_BCFHW[:, :, :1].expand(-1, -1, self.config.temporal_factor - 1, -1, -1)
        latents: Tensor = self.vae(torch.cat((first, pixels_BCFHW), dim=2))
        return latents

    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Predicted velocity of this rank's tokens."""
        positions = _positions(self.config.grid(batch.shape), self.config.width, self.device)
        own = positions[self.window(batch.shape).own]
        result: Tensor = self.transformer(noisy_BnP, batch.timesteps, batch.text, own)
        return result

    def set_checkpointing(self, enabled: bool) -> None:
        """Computes the blocks again in the backward pass, or no longer."""
        self._toy.checkpointing = enabled


class ToyTransformer(nn.Module):
    """Embeds tokens, runs the blocks, projects back."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.embed = nn.Linear(config.token_features, width)
        self.text = nn.Linear(config.text_dim, width)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 6 * width))
        self.blocks = nn.ModuleList(ToyBlock(config) for _ in range(config.layers))
        self.out = nn.Linear(width, config.token_features)
        self.checkpointing = False

    def forward(self, tokens: Tensor, timesteps: Tensor, text: Tensor, positions: Tensor) -> Tensor:
        """Velocity of tokens (B, n, P)."""
        wave = _waves(1000 * timesteps, self.embed.out_features)
        x, text = self.embed(tokens) + positions, self.text(text)
        modulation = self.time(wave).unsqueeze(1).chunk(6, dim=-1)
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, text, modulation, use_reentrant=False)
            else:
                x = block(x, text, modulation)
        result: Tensor = self.out(functional.layer_norm(x, x.shape[-1:]))
        return result


class ToyBlock(nn.Module):
    """Self-attention over the group's tokens, cross-attention to the text, and an MLP."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.norm_q, self.norm_k = nn.RMSNorm(config.head_dim), nn.RMSNorm(config.head_dim)
        self.proj = nn.Linear(width, width)
        self.cross_q = nn.Linear(width, width)
        # A bias of keys would shift all scores alike: no gradient but rounding noise.
        self.cross_kv = nn.Linear(width, 2 * width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(width, config.ffn_dim), nn.GELU(), nn.Linear(config.ffn_dim, width)
        )

    def forward(self, x: Tensor, text: Tensor, modulation: tuple[Tensor, ...]) -> Tensor:
        """The tokens after one block."""
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation
        normed = functional.layer_norm(x, x.shape[-1:]) * (1 + scale) + shift
        q, k, v = self.qkv(normed).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        x = x + gate * self.proj(attention(self.norm_q(q), self.norm_k(k), v).flatten(-2))
        q = self.cross_q(functional.layer_norm(x, x.shape[-1:])).unflatten(-1, (self.heads, -1))
        k, v = self.cross_kv(text).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        x = x + functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        normed = functional.layer_norm(x, x.shape[-1:]) * (1 + mlp_scale) + mlp_shift
        result: Tensor = x + mlp_gate * self.mlp(normed)
        return result


def _encoder(config: ModelConfig) -> nn.Conv3d:
    """One convolution without overlap: blocks of pixels to latents."""
    size = (config.temporal_factor, config.spatial_factor, config.spatial_factor)
    return nn.Conv3d(3, config.latent_channels, size, size)


def _waves(values: Tensor, features: int) -> Tensor:
    """Sines and cosines of values: (..., features)."""
    half = features // 2
    steps = torch.arange(half, device=values.device, dtype=torch.float32)
    angles = values[..., None] * torch.exp(-math.log(10_000) / half * steps)
    return functional.pad(torch.cat((angles.sin(), angles.cos()), dim=-1), (0, features % 2))


def _positions(grid: tuple[int, int, int], width: int, device: torch.device) -> Tensor:
    """Encoded places of all tokens of a grid: (N, width)."""
    axes = (torch.arange(size, device=device, dtype=torch.float32) for size in grid)
    places = torch.cartesian_prod(*axes)
    waves = _waves(places, width // 3).flatten(-2)
    return functional.pad(waves, (0, width - waves.shape[-1]))
