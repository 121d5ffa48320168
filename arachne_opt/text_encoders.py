"""Text encoders of video models as numbers.

Parameters are those of the public checkpoints, embedding tables apart: looking up a token costs
next to nothing, the layers do the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEncoderSpec:
    """A frozen text encoder.

    Args:
        parameters: all that lies in memory.
        layer_parameters: those that every token meets.
        source: where the numbers come from.
    """

    name: str
    parameters: int
    layer_parameters: int
    source: str


_T5 = TextEncoderSpec(
    name="t5-v1.1-xxl",
    parameters=4_762_310_656,
    layer_parameters=4_630_714_368,
    source="google/t5-v1_1-xxl, encoder: 24 layers of width 4096, inner 10240, 32128 tokens",
)
_UMT5 = TextEncoderSpec(
    name="umt5-xxl",
    parameters=5_680_910_336,
    layer_parameters=4_630_761_472,
    source="google/umt5-xxl, encoder: 24 layers of width 4096, inner 10240, 256384 tokens",
)
_LLAMA = TextEncoderSpec(
    name="llama-3-8b",
    parameters=7_504_924_672,
    layer_parameters=6_979_588_096,
    source="Llama 3 8B without its head: 32 layers of width 4096, inner 14336, 128256 tokens",
)

_TINY = TextEncoderSpec(
    name="tiny",
    parameters=9_472,
    layer_parameters=5_328,
    source="ours, for tests: T5 of two layers, width 16, inner 32, 259 tokens",
)

# By the beginning of a model's name.
TEXT_ENCODERS: Mapping[str, TextEncoderSpec] = MappingProxyType(
    {
        "wan2.1": _UMT5,
        "cogvideox": _T5,
        "hunyuanvideo": _LLAMA,
        "tiny-wan": _TINY,
        "tiny-cogvideox": _TINY,
        "tiny-hunyuan-video": _TINY,
        "demo-wan": _TINY,
    }
)


def text_encoder_of(model: ModelSpec) -> TextEncoderSpec:
    """The text encoder that a model was published with.

    Raises:
        InputError: none is known.
    """
    for beginning, encoder in TEXT_ENCODERS.items():
        if model.name.startswith(beginning):
            return encoder
    known = ", ".join(f"{name}-…" for name in TEXT_ENCODERS)
    raise InputError(f"no text encoder is known for {model.name}", hint=f"a model of {known}")
