"""What our runtime holds on a device: states in fp32, and activations tensor by tensor.

``AnalyticCostModel`` prices memory as frameworks in mixed precision need it. Here is what
``arachne train`` needs itself: weights and gradients of four bytes on every rank, moments shared
out, and activations as our adapters make them. The coefficients are least-squares fits over tiny
models of every family, with all tensors counted; ``benchmarks/memory_model.py`` repeats the
comparison. The structure is that of the models, so that they hold for real sizes, too:

    kept of a layer = S h (attention + exchange [k > 1]) + X h text + 2 S f

with S tokens of the rank, X text tokens beside them, width h and inner width f. With activations
computed again the inputs of all layers, S h each, and one layer in full remain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec, TextUse
from arachne_opt.workload import MicroBatch

SHARDINGS = ("replicated", "zero1", "fsdp2")

_BYTES = 4
_MOMENTS = 2  # of AdamW, for each weight
_RGB = 3
# Of a tile, at the peak of the larger of both encodes; fitted like the others.
_FIRST_FRAME = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Values that the adapters of a family keep or hold at the peak.

    Args:
        attention: per token, layer and unit of width, all but the feed-forward part.
        exchange: more of them in a group of several ranks.
        text: per text token of cross-attention, layer and unit of width.
        ends: per token and unit of width, once.
        latents: per value of the whole clips' latents.
        text_ends: per text token and unit of width, once.
        feature: of the VAE, per pixel of a tile and channel at full resolution.
        feature_frame: more of them per frame, up to ``chunk`` frames that it takes at once.
        pixels: copies of the pixels of a clip.
    """

    attention: float
    exchange: float
    text: float
    ends: float
    latents: float
    text_ends: float
    feature: float
    feature_frame: float
    pixels: float
    chunk: int


_FAMILIES: Mapping[str, Activations] = MappingProxyType(
    {
        "toy": Activations(
            attention=20.7,
            exchange=1.8,
            text=2.3,
            ends=1.2,
            latents=5.8,
            text_ends=4.9,
            feature=2.8,
            feature_frame=0.3,
            pixels=1.7,
            chunk=1_000,
        ),
        "wan": Activations(
            attention=23.9,
            exchange=0.8,
            text=4.9,
            ends=0.0,
            latents=7.0,
            text_ends=4.6,
            feature=1.0,
            feature_frame=6.7,
            pixels=1.5,
            chunk=4,
        ),
        "cogvideox": Activations(
            attention=14.9,
            exchange=1.0,
            text=0.0,
            ends=2.4,
            latents=9.7,
            text_ends=12.3,
            feature=6.4,
            feature_frame=4.2,
            pixels=1.1,
            chunk=9,
        ),
        "hunyuan_video": Activations(
            attention=16.7,
            exchange=0.4,
            text=0.0,
            ends=0.0,
            latents=16.9,
            text_ends=40.7,
            feature=2.1,
            feature_frame=4.0,
            pixels=1.0,
            chunk=17,
        ),
    }
)
# Adapters of users are taken for the like of ours.
_BY_TEXT = {TextUse.CROSS: "wan", TextUse.JOINT: "cogvideox"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeMemory:
    """Peak memory of a rank in ``arachne train``, fp32.

    Args:
        model: what is trained.
        ranks: of the whole run; they share the optimizer's moments.
        sharding: as in ``UpdateOptions``.
    """

    model: ModelSpec
    ranks: int
    sharding: str = "zero1"

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.sharding not in SHARDINGS:
            what = f"{self.ranks} ranks with {self.sharding!r}"
            raise InputError(f"no memory model of {what}", hint=f"one of {', '.join(SHARDINGS)}")

    def description(self) -> dict[str, Any]:
        """What decides the figures, for the version of a cost model."""
        own = {"ranks": self.ranks, "sharding": self.sharding}
        return own | {"activations": asdict(self._activations)}

    @property
    def _activations(self) -> Activations:
        known = _FAMILIES.get(self.model.family)
        return known or _FAMILIES[_BY_TEXT[self.model.text_use]]

    def states_bytes(self) -> int:
        """Weights, gradients, moments and the VAE's encoder, which are there whatever runs.

        FSDP2 gathers weights once and keeps gradients whole until the end of the iteration, so
        that its shards come on top.
        """
        each, shards = self.model.parameters * _BYTES, self.ranks
        once = {"replicated": 2 + _MOMENTS, "zero1": 2, "fsdp2": 2}[self.sharding]
        parted = {"replicated": 0, "zero1": _MOMENTS, "fsdp2": 1 + 1 + _MOMENTS}[self.sharding]
        vae = self.model.vae.encoder_parameters * _BYTES
        return once * each + -(-parted * each // shards) + vae

    def denoise_bytes(self, batch: MicroBatch, degree: int, *, recompute: bool) -> int:
        """Peak of a denoise task on the rank with the most tokens."""
        model, own = self.model, self._activations
        joint = model.text_use is TextUse.JOINT
        video = model.tokens(batch.shape)
        text = model.text_length
        tokens = (-(-video // degree) + (-(-text // degree) if joint else 0)) * batch.size
        beside = text * batch.size
        layer = tokens * model.hidden * (own.attention + own.exchange * (degree > 1))
        layer += beside * model.hidden * own.text + 2 * tokens * model.ffn
        inputs = tokens * model.hidden * model.layers
        values = inputs + layer if recompute else layer * model.layers
        values += tokens * model.hidden * own.ends
        values += beside * (model.hidden + model.text_width) * own.text_ends
        values += own.latents * self._latent_values(batch)
        return self.states_bytes() + round(_BYTES * values)

    def encode_bytes(self, batch: MicroBatch) -> int:
        """Peak of an encode task: one tile of one clip, beside the latents of all."""
        shape, own = batch.shape, self._activations
        edge, _ = self.model.vae.tile
        area = min(shape.height, edge) * min(shape.width, edge)
        frames = min(shape.frames, own.chunk)
        features = own.feature + own.feature_frame * frames
        pixels = shape.frames * shape.height * shape.width * _RGB
        values = area * self.model.vae.base_channels * features + pixels * own.pixels
        if self.model.from_image:  # a tile that shows the first frame and then nothing
            values += _FIRST_FRAME * area * shape.frames * _RGB
        return self.states_bytes() + round(_BYTES * (values + self._latent_values(batch)))

    def _latent_values(self, batch: MicroBatch) -> int:
        return self.model.latent_bytes(batch.shape, bytes_per_value=1) * batch.size
