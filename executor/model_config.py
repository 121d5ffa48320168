"""The sizes of a model that decide tokens, degrees and tiles; knows no torch.

A micro-batch of pixels becomes latents (one per ``temporal_factor`` frames after the first and
``spatial_factor`` pixels), which patches of ``patch`` latents turn into tokens.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec, model_spec
from arachne_opt.suggest import did_you_mean
from arachne_opt.workload import Shape

FAMILIES = ("toy", "wan")

_REAL_VAE_CHANNELS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A video diffusion transformer with its VAE.

    Args:
        vae_dim: channels of the VAE at full resolution.
        vae_multipliers: channels of each level of the VAE over ``vae_dim``.
        vae_blocks: residual blocks of each level.
        patch: latents per token in time, height and width.
        text_length: text tokens that the transformer sees; texts are cut or padded to it.
        tile: edge in pixels above which the VAE encodes in tiles.
        tile_stride: distance between two tiles; the rest of a tile is blended.
    """

    family: str
    heads: int
    head_dim: int
    layers: int
    ffn_dim: int
    vae_dim: int
    vae_multipliers: tuple[int, ...]
    vae_blocks: int
    latent_channels: int
    text_dim: int
    text_length: int
    patch: tuple[int, int, int]
    temporal_factor: int
    spatial_factor: int
    tile: int
    tile_stride: int

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            what = f"the runtime cannot run models of the family {self.family!r}"
            raise InputError(what, hint=f"a model of the families {', '.join(FAMILIES)}")
        sizes = (self.heads, self.head_dim, self.layers, self.ffn_dim, self.vae_dim)
        if min(*sizes, self.latent_channels, self.text_dim, self.text_length, *self.patch) < 1:
            raise InputError("all sizes of a model must be at least 1", where=self.family)
        edges = (self.tile, self.tile_stride)
        if min(edges) < 1 or self.tile_stride > self.tile:
            raise InputError(f"a tile of {self.tile} cannot advance by {self.tile_stride} pixels")
        if any(edge % self.spatial_factor for edge in edges):
            what = f"tile and tile_stride must be multiples of {self.spatial_factor}, not {edges}"
            raise InputError(what, where=self.family)

    @property
    def width(self) -> int:
        """Features of a token inside the transformer."""
        return self.heads * self.head_dim

    @property
    def token_features(self) -> int:
        """Latent values of one token."""
        return self.latent_channels * math.prod(self.patch)

    def latent_size(self, shape: Shape) -> tuple[int, int, int]:
        """Latents of a clip in time, height and width.

        Raises:
            InputError: a shape that this model cannot take; names the nearest smaller one.
        """
        height, width = (self.spatial_factor * p for p in self.patch[1:])
        frames = 1 + (shape.frames - 1) // self.temporal_factor * self.temporal_factor
        frames = frames if self.patch[0] == 1 else shape.frames
        fitted = (frames, shape.height // height * height, shape.width // width * width)
        if fitted != (shape.frames, shape.height, shape.width) or min(fitted) < 1:
            what = f"the {self.family} model takes {self.temporal_factor}n+1 frames and multiples"
            what += f" of {height} by {width} pixels, not {shape}"
            hint = f"{fitted[0]}x{max(fitted[1], height)}x{max(fitted[2], width)}"
            raise InputError(what, hint=hint)
        latents = 1 + (shape.frames - 1) // self.temporal_factor
        return latents, shape.height // self.spatial_factor, shape.width // self.spatial_factor

    def grid(self, shape: Shape) -> tuple[int, int, int]:
        """Tokens of a clip in time, height and width."""
        t, h, w = self.latent_size(shape)
        return t // self.patch[0], h // self.patch[1], w // self.patch[2]

    def token_count(self, shape: Shape) -> int:
        """Tokens of one clip."""
        return math.prod(self.grid(shape))

    def legal_degrees(self, limit: int) -> tuple[int, ...]:
        """Sequence-parallel degrees up to ``limit``: the divisors of the number of heads."""
        return tuple(k for k in range(1, limit + 1) if self.heads % k == 0)


def config_of(spec: ModelSpec) -> ModelConfig:
    """The sizes of a published or built-in model.

    Raises:
        InputError: the runtime has no adapter for its family.
    """
    small = spec.vae.base_channels < _REAL_VAE_CHANNELS
    tile, stride = (96, 72) if small else (256, 192)
    return ModelConfig(
        family=spec.family,
        heads=spec.heads,
        head_dim=spec.head_dim,
        layers=spec.layers,
        ffn_dim=spec.ffn,
        vae_dim=spec.vae.base_channels,
        vae_multipliers=spec.vae.channel_multipliers,
        vae_blocks=spec.vae.blocks_per_level,
        latent_channels=spec.vae.latent_channels,
        text_dim=spec.text_width,
        text_length=spec.text_length,
        patch=spec.patch,
        temporal_factor=spec.vae.temporal,
        spatial_factor=spec.vae.spatial,
        tile=tile,
        tile_stride=stride,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model to run.

    Args:
        preset: name in ``models.MODELS``; random weights. Ignored by a checkpoint.
        overrides: sizes that differ from the preset, such as ``{"layers": 4}``.
        checkpoint: local folder in diffusers' layout (``transformer/`` and ``vae/``), Wan only.
        seed: seed of random weights.
    """

    preset: str = "toy"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.checkpoint:
            self.config()

    @property
    def name(self) -> str:
        """Name under which measurements are kept; tells apart what has other sizes."""
        if self.checkpoint:
            return Path(self.checkpoint).name
        changed = "".join(f",{key}={self.overrides[key]}" for key in sorted(self.overrides))
        return self.preset + changed

    def config(self) -> ModelConfig:
        """The sizes, from the preset or the checkpoint's configuration files."""
        if self.checkpoint:
            return _wan_checkpoint(Path(self.checkpoint))
        base = config_of(model_spec(self.preset))
        known = [name for name in ModelConfig.__dataclass_fields__ if name != "family"]
        for key in self.overrides:
            if key not in known:
                what = f"unknown model size {key!r}{did_you_mean(key, known)}"
                raise InputError(what, where=self.preset, hint=f"one of {', '.join(known)}")
        lists = ("patch", "vae_multipliers")
        changed: dict[str, Any] = {
            k: tuple(v) if k in lists else v for k, v in self.overrides.items()
        }
        return replace(base, **changed)


def _wan_checkpoint(folder: Path) -> ModelConfig:
    dit = _read_config(folder / "transformer" / "config.json")
    vae = _read_config(folder / "vae" / "config.json")
    try:
        return ModelConfig(
            family="wan",
            heads=dit["num_attention_heads"],
            head_dim=dit["attention_head_dim"],
            layers=dit["num_layers"],
            ffn_dim=dit["ffn_dim"],
            vae_dim=vae["base_dim"],
            vae_multipliers=tuple(vae["dim_mult"]),
            vae_blocks=vae["num_res_blocks"],
            latent_channels=dit["in_channels"],
            text_dim=dit["text_dim"],
            text_length=512,
            patch=tuple(dit["patch_size"]),
            temporal_factor=vae.get("scale_factor_temporal", 4),
            spatial_factor=vae.get("scale_factor_spatial", 8),
            tile=256,
            tile_stride=192,
        )
    except KeyError as error:
        raise InputError(f"the configuration lacks {error}", where=str(folder)) from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        hint = "a folder in diffusers' layout, with transformer/ and vae/"
        raise InputError("the checkpoint has no such file", where=str(path), hint=hint) from error
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the configuration: {error}", where=str(path)) from error
    if not isinstance(value, dict):
        raise InputError("expected a table of keys", where=str(path))
    return value
