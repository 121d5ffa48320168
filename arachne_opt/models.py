"""Video diffusion models as numbers: what costs, memory and legal degrees follow from.

Layer counts, widths and heads are those that the authors publish (see ``source`` of each model).
Parameters are counted on the public diffusers implementation (0.42) of each transformer and VAE
encoder, and so are the encoder's operations per pixel (17 frames of 256 x 256).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from arachne_opt.errors import InputError
from arachne_opt.plugins import is_plugin, load_plugin
from arachne_opt.suggest import did_you_mean
from arachne_opt.workload import Shape

_REAL_VAE_CHANNELS = 32


class TextUse(enum.StrEnum):
    """How the transformer sees the text."""

    CROSS = "cross"  # cross-attention beside self-attention
    JOINT = "joint"  # text tokens join the video tokens in one attention


@dataclass(frozen=True, slots=True, kw_only=True)
class VaeSpec:
    """A causal video VAE: frame 1 alone, then ``temporal`` frames to one latent frame.

    Args:
        temporal: frames per latent frame after the first.
        spatial: pixels per latent pixel, in height and width.
        latent_channels: channels of the latents.
        encoder_parameters: parameters of the encoder.
        encode_flops_per_pixel: operations of the encoder per pixel and frame.
        base_channels: channels at full resolution.
        channel_multipliers: channels of each level over ``base_channels``.
        blocks_per_level: residual blocks of each level.
    """

    temporal: int
    spatial: int
    latent_channels: int
    encoder_parameters: int
    encode_flops_per_pixel: int
    base_channels: int
    channel_multipliers: tuple[int, ...]
    blocks_per_level: int

    def __post_init__(self) -> None:
        if min(self.temporal, self.spatial, self.latent_channels, self.base_channels) < 1:
            raise InputError(f"compression and channels must be positive, not {self}")

    @property
    def tile(self) -> tuple[int, int]:
        """Edge of its tiles in pixels and the way from one to the next; less for tiny ones."""
        return (96, 72) if self.base_channels < _REAL_VAE_CHANNELS else (256, 192)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A diffusion transformer with its VAE.

    Args:
        family: architecture, which names the adapter that can run it: one of ours, or
            ``module:Class`` of the user's.
        layers: transformer blocks.
        ffn: inner width of the feed-forward part.
        parameters: of the transformer.
        patch: latent frames, height and width of one token.
        text_length: text tokens are cut or padded to this many.
        text_width: width of a text token before the model's own projection.
        source: where the numbers come from.
        single_layers: of the layers, those with one stream for text and video.
        rotary: positions turn queries and keys; else they are added to the tokens.
        pooled_width: width of a further embedding of the whole text; 0 without.
        image_tokens: tokens of an embedded first frame, of ``image_width`` features; 0 without.
    """

    name: str
    family: str
    layers: int
    heads: int
    head_dim: int
    ffn: int
    parameters: int
    patch: tuple[int, int, int]
    in_channels: int
    out_channels: int
    text_use: TextUse
    text_length: int
    text_width: int
    vae: VaeSpec
    source: str
    single_layers: int = 0
    rotary: bool = True
    pooled_width: int = 0
    image_tokens: int = 0
    image_width: int = 0

    def __post_init__(self) -> None:
        sizes = (self.layers, self.heads, self.head_dim, self.ffn, self.parameters, *self.patch)
        if min(sizes) < 1 or self.text_length < 0:
            raise InputError("sizes must be positive", where=f"model {self.name}")

    @property
    def hidden(self) -> int:
        """Width of a token: heads times head_dim."""
        return self.heads * self.head_dim

    @property
    def from_image(self) -> bool:
        """Whether the model also sees latents of the first frame, and a mask that marks it."""
        return self.in_channels > self.vae.latent_channels

    @property
    def pixel_step(self) -> tuple[int, int]:
        """Height and width must be multiples of these: pixels per token."""
        return self.vae.spatial * self.patch[1], self.vae.spatial * self.patch[2]

    def latent_shape(self, shape: Shape) -> tuple[int, int, int]:
        """Latent frames, height and width; frames beyond the last full group do not count."""
        frames = (shape.frames - 1) // self.vae.temporal + 1
        return frames, shape.height // self.vae.spatial, shape.width // self.vae.spatial

    def token_grid(self, shape: Shape) -> tuple[int, int, int]:
        """Tokens along frames, height and width of one clip.

        Raises:
            InputError: the clip is smaller than one token.
        """
        latent = self.latent_shape(shape)
        grid = tuple(size // step for size, step in zip(latent, self.patch, strict=True))
        if min(grid) < 1:
            rows, columns = self.pixel_step
            what = f"a clip of {shape} is smaller than one token of {self.name}"
            raise InputError(what, hint=f"at least {rows} x {columns} pixels")
        return grid[0], grid[1], grid[2]

    def tokens(self, shape: Shape) -> int:
        """Video tokens of one clip."""
        frames, rows, columns = self.token_grid(shape)
        return frames * rows * columns

    def used_text_tokens(self, text_tokens: int) -> int:
        """Text tokens that the model sees: cut to its length, which also stands for unknown (0)."""
        return min(text_tokens, self.text_length) if text_tokens else self.text_length

    def fit_shape(self, shape: Shape) -> Shape:
        """The largest shape inside ``shape`` that the model takes without loss.

        Frames are rounded down to ``temporal * n + 1``, height and width to whole tokens.
        """
        rows, columns = self.pixel_step
        frames = self.latent_shape(shape)[0] // self.patch[0] * self.patch[0]
        if frames < 1 or shape.height < rows or shape.width < columns:
            self.token_grid(shape)  # says what is too small
        return Shape(
            frames=(frames - 1) * self.vae.temporal + 1,
            height=shape.height // rows * rows,
            width=shape.width // columns * columns,
        )

    def latent_bytes(self, shape: Shape, *, bytes_per_value: int = 2) -> int:
        """Size of the latents of one clip, those of its first frame included."""
        frames, height, width = self.latent_shape(shape)
        channels = self.vae.latent_channels * (2 if self.from_image else 1)
        return frames * height * width * channels * bytes_per_value

    def legal_degrees(self, max_degree: int) -> tuple[int, ...]:
        """Sequence-parallel degrees up to ``max_degree``: those that divide the heads."""
        return tuple(k for k in range(1, max_degree + 1) if self.heads % k == 0)

    def why_illegal(self, degree: int) -> str | None:
        """Why a degree cannot be used, with the legal ones; None for a legal degree."""
        if degree >= 1 and self.heads % degree == 0:
            return None
        legal = ", ".join(map(str, self.legal_degrees(self.heads)))
        return (
            f"degree {degree} does not divide the {self.heads} heads of {self.name}; legal: {legal}"
        )


_WAN_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=16,
    encoder_parameters=53_596_928,
    encode_flops_per_pixel=5_107_379,
    base_channels=96,
    channel_multipliers=(1, 2, 4, 4),
    blocks_per_level=2,
)
_HUNYUAN_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=16,
    encoder_parameters=100_342_464,
    encode_flops_per_pixel=12_169_711,
    base_channels=128,
    channel_multipliers=(1, 2, 4, 4),
    blocks_per_level=2,
)
_COGVIDEOX_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=16,
    encoder_parameters=92_215_456,
    encode_flops_per_pixel=8_993_717,
    base_channels=128,
    channel_multipliers=(1, 2, 2, 4),
    blocks_per_level=3,
)
_TINY_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=4,
    encoder_parameters=21_648,
    encode_flops_per_pixel=4_197,
    base_channels=4,
    channel_multipliers=(1, 2, 2, 2),
    blocks_per_level=1,
)
_TINY_COGVIDEOX_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=4,
    encoder_parameters=25_184,
    encode_flops_per_pixel=9_540,
    base_channels=8,
    channel_multipliers=(1, 1, 1, 1),
    blocks_per_level=1,
)
_TINY_HUNYUAN_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=4,
    encoder_parameters=29_016,
    encode_flops_per_pixel=14_616,
    base_channels=8,
    channel_multipliers=(1, 1, 1, 1),
    blocks_per_level=1,
)
# One convolution with kernel and stride (4, 8, 8), the first frame repeated.
_TOY_VAE = VaeSpec(
    temporal=4,
    spatial=8,
    latent_channels=4,
    encoder_parameters=3_076,
    encode_flops_per_pixel=24,
    base_channels=4,
    channel_multipliers=(1,),
    blocks_per_level=1,
)


def _wan(
    name: str, source: str, vae: VaeSpec, *, from_image: bool = False, **numbers: int
) -> ModelSpec:
    # Image to video: a mask of one channel per frame of a latent, and the first frame's latents.
    more = vae.temporal + vae.latent_channels if from_image else 0
    return ModelSpec(
        name=name,
        family="wan",
        rotary=True,
        patch=(1, 2, 2),
        in_channels=vae.latent_channels + more,
        out_channels=vae.latent_channels,
        text_use=TextUse.CROSS,
        vae=vae,
        source=source,
        **numbers,
    )


def _cogvideox(name: str, *, rotary: bool, **numbers: int) -> ModelSpec:
    return ModelSpec(
        name=name,
        rotary=rotary,
        family="cogvideox",
        head_dim=64,
        patch=(1, 2, 2),
        in_channels=16,
        out_channels=16,
        text_use=TextUse.JOINT,
        text_length=226,
        text_width=4096,
        vae=_COGVIDEOX_VAE,
        source="«CogVideoX», arXiv 2408.06072, and the published configuration",
        **numbers,
    )


_WAN_SOURCE = "«Wan: Open and Advanced Large-Scale Video Generative Models», arXiv 2503.20314"
_OWN_SOURCE = "ours, for tests and demonstrations on a CPU; random weights"
_ALL = (
    ModelSpec(
        name="hunyuanvideo-13b",
        family="hunyuan_video",
        layers=60,  # a block with one stream takes as much work per token as one with two
        single_layers=40,
        pooled_width=768,
        heads=24,
        head_dim=128,
        ffn=12_288,
        parameters=12_821_012_544,
        patch=(1, 2, 2),
        in_channels=16,
        out_channels=16,
        text_use=TextUse.JOINT,
        text_length=256,
        text_width=4096,
        vae=_HUNYUAN_VAE,
        source="«HunyuanVideo», arXiv 2412.03603, and the published configuration",
    ),
    _wan(
        "wan2.1-1.3b",
        _WAN_SOURCE,
        _WAN_VAE,
        layers=30,
        heads=12,
        head_dim=128,
        ffn=8_960,
        parameters=1_418_996_800,
        text_length=512,
        text_width=4096,
    ),
    _wan(
        "wan2.1-14b",
        _WAN_SOURCE,
        _WAN_VAE,
        layers=40,
        heads=40,
        head_dim=128,
        ffn=13_824,
        parameters=14_288_491_584,
        text_length=512,
        text_width=4096,
    ),
    _wan(
        "wan2.1-i2v-14b",
        _WAN_SOURCE,
        _WAN_VAE,
        from_image=True,
        layers=40,
        heads=40,
        head_dim=128,
        ffn=13_824,
        parameters=16_394_878_784,
        text_length=512,
        text_width=4096,
        image_tokens=257,
        image_width=1280,
    ),
    _cogvideox(
        "cogvideox-2b", rotary=False, layers=30, heads=30, ffn=7_680, parameters=1_693_783_872
    ),
    _cogvideox(
        "cogvideox-5b", rotary=True, layers=42, heads=48, ffn=12_288, parameters=5_570_283_072
    ),
    _wan(
        "tiny-wan",
        _OWN_SOURCE,
        _TINY_VAE,
        layers=2,
        heads=4,
        head_dim=12,
        ffn=96,
        parameters=80_416,
        text_length=16,
        text_width=16,
    ),
    _wan(
        "tiny-wan-i2v",
        _OWN_SOURCE,
        _TINY_VAE,
        from_image=True,
        layers=2,
        heads=4,
        head_dim=12,
        ffn=96,
        parameters=92_672,
        text_length=512,  # diffusers tells image from text tokens by this number
        text_width=16,
        image_tokens=5,
        image_width=16,
    ),
    ModelSpec(
        name="tiny-cogvideox",
        family="cogvideox",
        layers=2,
        heads=4,
        head_dim=16,
        ffn=256,
        parameters=161_616,
        patch=(1, 2, 2),
        in_channels=4,
        out_channels=4,
        text_use=TextUse.JOINT,
        text_length=14,
        text_width=16,
        vae=_TINY_COGVIDEOX_VAE,
        source=_OWN_SOURCE,
    ),
    ModelSpec(
        name="tiny-hunyuan-video",
        family="hunyuan_video",
        layers=4,
        single_layers=2,
        heads=4,
        head_dim=12,
        ffn=192,
        parameters=362_560,
        patch=(1, 2, 2),
        in_channels=4,
        out_channels=4,
        text_use=TextUse.JOINT,
        text_length=14,
        text_width=16,
        pooled_width=16,
        vae=_TINY_HUNYUAN_VAE,
        source=_OWN_SOURCE,
    ),
    _wan(
        "demo-wan",
        _OWN_SOURCE,
        _TINY_VAE,
        layers=8,
        heads=4,
        head_dim=48,
        ffn=768,
        parameters=5_072_848,
        text_length=32,
        text_width=32,
    ),
    ModelSpec(
        name="toy",
        family="toy",
        layers=2,
        heads=4,
        head_dim=16,
        ffn=128,
        parameters=123_152,
        patch=(1, 2, 2),
        in_channels=4,
        out_channels=4,
        text_use=TextUse.CROSS,
        text_length=16,
        text_width=16,
        vae=_TOY_VAE,
        source=_OWN_SOURCE,
    ),
)

MODELS: Mapping[str, ModelSpec] = MappingProxyType({spec.name: spec for spec in _ALL})


def model_spec(name: str) -> ModelSpec:
    """The preset of a model, or a ``ModelSpec`` of the user's, named as ``module:NAME``.

    Raises:
        InputError: no such model; the message offers the nearest name.
    """
    if is_plugin(name):
        spec = load_plugin(name)
        if not isinstance(spec, ModelSpec):
            raise InputError(f"{name} is a {type(spec).__name__}, not a ModelSpec")
        return spec
    if name not in MODELS:
        what = f"unknown model {name!r}{did_you_mean(name, MODELS)}"
        raise InputError(what, hint=f"one of {', '.join(MODELS)}")
    return MODELS[name]
