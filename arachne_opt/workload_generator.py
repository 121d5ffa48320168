"""Synthetic mixed workloads, seeded: clips of several resolutions, lengths and texts, and images.

Facts of the public artifact of «Arachne: Orchestrating Cascades» (woshipapa/Arachne_artifact):
the micro-batch sizes by frames at 720p (bucket_config.py, label 960px) and at 1080p
(bucket_config_for_hunyuan_1080p_sp4.py, label 1440px), and those seen at 360p in
simulation_log_wan_360p.txt. The mixtures, the log-normal lengths and the image buckets are ours.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from arachne_opt.buckets import Bucket, BucketTable
from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape, Workload

# Clips of a micro-batch by least frames: the batch holds up to the next entry.
_BATCH_360P = {5: 6, 21: 4, 29: 3, 41: 2, 61: 1}
_BATCH_720P = {5: 6, 21: 5, 29: 4, 37: 3, 53: 2, 77: 1}
_BATCH_1080P = {5: 6, 9: 5, 13: 3, 21: 2, 29: 1}
_BATCH_TINY = {5: 4, 9: 3, 17: 2, 33: 1}
_IMAGE_BATCH = 8

_PORTRAIT_SHARE = 0.2
_FPS = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kind of clips in a mixture.

    Args:
        weight: share of the clips, relative to the other sources.
        height: of the clips that lie on their long side; a fifth of them stands upright.
        frames: lengths that clips are cut to, ascending.
        median_frames: median of the log-normal length before it is cut.
        spread: standard deviation of its logarithm.
        batch: clips of a micro-batch, by least frames.
    """

    weight: float
    height: int
    width: int
    frames: tuple[int, ...]
    median_frames: float
    spread: float
    batch: Mapping[int, int]

    def batch_at(self, frames: int) -> int:
        """Clips of a micro-batch of this length."""
        least = sorted(self.batch)
        return self.batch[least[max(0, bisect_right(least, frames) - 1)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A mixture of sources, with the text that goes with its clips."""

    sources: tuple[Source, ...]
    median_text: float
    max_text: int


def _ladder(last: int) -> tuple[int, ...]:
    """Lengths 5, 9, 13 … that a causal VAE takes without loss."""
    return tuple(range(5, last + 1, 4))


def _video(
    weight: float, height: int, width: int, last: int, median: float, batch: Mapping[int, int]
) -> Source:
    return Source(
        weight=weight,
        height=height,
        width=width,
        frames=_ladder(last),
        median_frames=median,
        spread=0.7,
        batch=batch,
    )


def _image(weight: float, height: int, width: int, batch: int) -> Source:
    return Source(
        weight=weight,
        height=height,
        width=width,
        frames=(1,),
        median_frames=1,
        spread=0,
        batch={1: batch},
    )


def _tiny(weight: float, height: int, width: int) -> Source:
    return Source(
        weight=weight,
        height=height,
        width=width,
        frames=(5, 9, 17, 33),
        median_frames=13,
        spread=0.8,
        batch=_BATCH_TINY,
    )


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "mixed": Preset(
            sources=(
                _image(0.3, 720, 1280, _IMAGE_BATCH),
                _video(0.3, 352, 656, 129, 65, _BATCH_360P),
                _video(0.3, 720, 1280, 129, 65, _BATCH_720P),
                _video(0.1, 1072, 1936, 57, 33, _BATCH_1080P),
            ),
            median_text=120,
            max_text=256,
        ),
        "360p": Preset(
            sources=(_video(1, 352, 656, 129, 65, _BATCH_360P),), median_text=120, max_text=256
        ),
        "720p": Preset(
            sources=(_video(1, 720, 1280, 129, 65, _BATCH_720P),), median_text=120, max_text=256
        ),
        "1080p": Preset(
            sources=(_video(1, 1072, 1936, 57, 33, _BATCH_1080P),), median_text=120, max_text=256
        ),
        "tiny": Preset(
            sources=(_image(0.2, 64, 64, 4), _tiny(0.5, 32, 48), _tiny(0.3, 64, 96)),
            median_text=8,
            max_text=16,
        ),
        # Small enough for a CPU, long enough that the longest clips gain from two of them.
        "demo": Preset(
            sources=(_image(0.3, 64, 64, 4), _tiny(0.4, 48, 64), _tiny(0.3, 96, 144)),
            median_text=16,
            max_text=32,
        ),
    }
)


def preset_named(name: str) -> Preset:
    """The mixture of a name.

    Raises:
        InputError: no such mixture; the message offers the nearest name.
    """
    if name not in PRESETS:
        what = f"unknown workload preset {name!r}{did_you_mean(name, PRESETS)}"
        raise InputError(what, hint=f"one of {', '.join(PRESETS)}")
    return PRESETS[name]


def generate_clips(preset: str, *, count: int, seed: int = 0) -> tuple[Clip, ...]:
    """Clips of a mixture; equal arguments give equal clips, and fewer are a head of more."""
    if count < 1:
        raise InputError(f"at least one clip must be asked for, not {count}")
    mixture, rng = preset_named(preset), random.Random(seed)
    return tuple(_clip(mixture, _shape(mixture, rng), number, rng) for number in range(count))


def bucket_table(preset: str) -> BucketTable:
    """The buckets of a mixture: every shape that its clips can have."""
    buckets = {
        shape: source.batch_at(frames)
        for source in preset_named(preset).sources
        for frames in source.frames
        for shape in _orientations(source, frames)
    }
    rows = tuple(Bucket(shape=shape, batch=batch) for shape, batch in sorted(buckets.items()))
    return BucketTable(name=preset, buckets=rows)


def generate_workload(preset: str, *, iterations: int, cascades: int, seed: int = 0) -> Workload:
    """Iterations of full micro-batches of a mixture.

    Shapes appear as often as in a long run over clips of the mixture: a shape whose micro-batch
    holds n clips fills one for every n of its clips.

    Args:
        preset: name of the mixture.
        iterations: number of iterations.
        cascades: micro-batches of each iteration.
        seed: equal arguments give an equal workload.
    """
    if iterations < 1 or cascades < 1:
        raise InputError(f"iterations and cascades must be positive: {iterations}, {cascades}")
    mixture, rng = preset_named(preset), random.Random(seed)
    size_of = {bucket.shape: bucket.batch for bucket in bucket_table(preset).buckets}
    batches: list[MicroBatch] = []
    drawn = 0
    while len(batches) < iterations * cascades:
        shape = _shape(mixture, rng)
        size = size_of[shape]
        if rng.random() * size >= 1:
            continue
        clips = tuple(_clip(mixture, shape, drawn + i, rng) for i in range(size))
        batches.append(MicroBatch(id=f"mb{len(batches)}", shape=shape, clips=clips))
        drawn += size
    parts = [batches[at : at + cascades] for at in range(0, len(batches), cascades)]
    return Workload(
        name=f"{preset}-{cascades}x{iterations}-seed{seed}",
        iterations=tuple(
            Iteration(name=f"it{number}", micro_batches=tuple(part))
            for number, part in enumerate(parts)
        ),
    )


def _shape(preset: Preset, rng: random.Random) -> Shape:
    """The shape of a random clip of a mixture."""
    source = rng.choices(preset.sources, [source.weight for source in preset.sources])[0]
    shapes = _orientations(source, _length(source, rng))
    return shapes[-1] if rng.random() < _PORTRAIT_SHARE else shapes[0]


def _clip(preset: Preset, shape: Shape, number: int, rng: random.Random) -> Clip:
    """A clip of a shape with a text of log-normal length; without a path its pixels are made up."""
    text = round(preset.median_text * math.exp(rng.gauss(0, 0.6)))
    return Clip(
        id=f"clip{number:06d}",
        shape=shape,
        text_tokens=min(max(text, 1), preset.max_text),
        fps=0.0 if shape.frames == 1 else _FPS,
    )


def _length(source: Source, rng: random.Random) -> int:
    """A log-normal length, cut to the longest one that the source has below it."""
    drawn = source.median_frames * math.exp(rng.gauss(0, source.spread))
    return source.frames[max(0, bisect_right(source.frames, drawn) - 1)]


def _orientations(source: Source, frames: int) -> tuple[Shape, ...]:
    """The shape lying, and upright where that is another one."""
    lying = Shape(frames=frames, height=source.height, width=source.width)
    upright = Shape(frames=frames, height=source.width, width=source.height)
    return (lying,) if lying == upright else (lying, upright)
