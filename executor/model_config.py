"""The sizes of a model that decide tokens, degrees and tiles; knows no torch.

A micro-batch of pixels becomes latents (one per ``temporal_factor`` frames after the first and
``spatial_factor`` pixels), which patches of ``patch`` latents turn into tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec, TextUse, model_spec
from arachne_opt.plugins import is_plugin
from arachne_opt.suggest import did_you_mean
from arachne_opt.workload import Shape

FAMILIES = ("toy", "wan", "cogvideox", "hunyuan_video")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A video diffusion transformer with its VAE.

    Args:
        family: names the adapter: one of ``FAMILIES``, or ``module:Class`` of the user's.
        layers: blocks in all; ``single_layers`` of them have one stream for text and video.
        vae_dim: channels of the VAE at full resolution.
        vae_multipliers: channels of each level of the VAE over ``vae_dim``.
        vae_blocks: residual blocks of each level.
        patch: latents per token in time, height and width.
        text_length: text tokens that the transformer sees; texts are cut or padded to it.
        tile: edge in pixels above which the VAE encodes in tiles.
        tile_stride: distance between two tiles; the rest of a tile is blended.
        joint_text: text tokens take part in self-attention and are shared out over its group.
        from_image: the model also sees the latents of the first frame.
        rotary: positions turn queries and keys; else they are added to the tokens.
        pooled_width: features of a further embedding of the whole text.
        image_tokens: tokens of an embedded first frame, of ``image_width`` features.
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
    joint_text: bool = False
    from_image: bool = False
    rotary: bool = True
    single_layers: int = 0
    pooled_width: int = 0
    image_tokens: int = 0
    image_width: int = 0

    def __post_init__(self) -> None:
        if self.family not in FAMILIES and not is_plugin(self.family):
            what = f"the runtime cannot run models of the family {self.family!r}"
            raise InputError(what, hint=f"a model of the families {', '.join(FAMILIES)}")
        sizes = (self.heads, self.head_dim, self.layers, self.ffn_dim, self.vae_dim)
        if min(*sizes, self.latent_channels, self.text_dim, self.text_length, *self.patch) < 1:
            raise InputError("all sizes of a model must be at least 1", where=self.family)
        if self.joint_text and self.text_length < self.heads:
            what = f"{self.text_length} text tokens cannot be shared by up to {self.heads} ranks"
            raise InputError(what, where=self.family, hint="a text_length of at least the heads")
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

    @property
    def carried_channels(self) -> int:
        """Channels that an encode task gives: latents, and those of the first frame if used."""
        return self.latent_channels * (2 if self.from_image else 1)

    @property
    def carried_features(self) -> int:
        """Values of one token that an encode task hands over."""
        return self.carried_channels * math.prod(self.patch)

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """Sizes of what the model wants to know of each clip besides its text, by name."""
        wanted = {
            "pooled": (self.pooled_width,),
            "image": (self.image_tokens, self.image_width),
        }
        return {name: size for name, size in wanted.items() if min(size) > 0}

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

    def text_tokens(self, known: int) -> int:
        """Text tokens that count of a clip with ``known`` ones: at least 1, at most all."""
        return max(1, min(known, self.text_length))

    def legal_degrees(self, limit: int) -> tuple[int, ...]:
        """Sequence-parallel degrees up to ``limit``: the divisors of the number of heads."""
        return tuple(k for k in range(1, limit + 1) if self.heads % k == 0)


class EmulatedConfig(ModelConfig):
    """Small tensors for a rehearsal of a plan, whatever its clips and degrees are."""

    __slots__ = ()

    def latent_size(self, shape: Shape) -> tuple[int, int, int]:
        """The same for every clip: enough tokens for a degree of 256."""
        return 1, 16, 16

    def legal_degrees(self, limit: int) -> tuple[int, ...]:
        """Every degree: no head is computed."""
        return tuple(range(1, limit + 1))


EMULATED_CONFIG = EmulatedConfig(
    family="toy",
    heads=1,
    head_dim=1,
    layers=1,
    ffn_dim=1,
    vae_dim=1,
    vae_multipliers=(1,),
    vae_blocks=1,
    latent_channels=1,
    text_dim=1,
    text_length=1,
    patch=(1, 1, 1),
    temporal_factor=1,
    spatial_factor=1,
    tile=16,
    tile_stride=16,
)


def config_of(spec: ModelSpec) -> ModelConfig:
    """The sizes of a published or built-in model.

    Raises:
        InputError: the runtime has no adapter for its family.
    """
    tile, stride = spec.vae.tile
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
        joint_text=spec.text_use is TextUse.JOINT,
        from_image=spec.from_image,
        rotary=spec.rotary,
        single_layers=spec.single_layers,
        pooled_width=spec.pooled_width,
        image_tokens=spec.image_tokens,
        image_width=spec.image_width,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoice:
    """Which model to run.

    Args:
        preset: name in ``models.MODELS``, or ``module:NAME`` of a ``ModelSpec`` of the user's;
            random weights. Ignored by a checkpoint.
        overrides: sizes that differ from the preset, such as ``{"layers": 4}``.
        checkpoint: local folder in diffusers' layout (``transformer/`` and ``vae/``).
        seed: seed of random weights.
        checkpointing: keep only the inputs of the blocks and compute their activations again.
        emulated: sleep for the planned time instead of computing anything.
    """

    preset: str = "toy"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str = ""
    seed: int = 0
    checkpointing: bool = False
    emulated: bool = False

    def __post_init__(self) -> None:
        if not self.checkpoint:
            self.config()

    @property
    def name(self) -> str:
        """Name under which measurements are kept; tells apart what has other sizes."""
        if self.emulated:
            return f"emulated {self.preset}"
        if self.checkpoint:
            return Path(self.checkpoint).name
        changed = "".join(f",{key}={self.overrides[key]}" for key in sorted(self.overrides))
        return self.preset + changed

    def config(self) -> ModelConfig:
        """The sizes, from the preset or the checkpoint's configuration files."""
        if self.emulated:
            return EMULATED_CONFIG
        if self.checkpoint:
            from arachne_opt.executor.diffusers_folder import folder_config

            return folder_config(Path(self.checkpoint))
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
