"""Clips at another frame rate than their files have."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from arachne_opt.errors import InputError
from arachne_opt.workload import Clip, Workload


def at_frame_rate(clips: Sequence[Clip], fps: float) -> tuple[Clip, ...]:
    """The clips as they are trained at ``fps`` frames per second.

    Images, cached latents and clips that are no faster keep their frames: none is made up.

    Raises:
        InputError: the rate of a clip is not known.
    """
    if fps <= 0:
        raise InputError(f"a frame rate must be positive, not {fps:g}", hint="--fps 16")
    unknown = [c.id for c in clips if c.shape.frames > 1 and not c.latents and c.fps == 0]
    if unknown:
        what = f"{len(unknown)} clips have no fps, among them {unknown[0]}"
        raise InputError(what, hint="a column fps, or training without --fps")
    return tuple(_at_rate(clip, fps) for clip in clips)


def frame_lines(before: Iterable[Clip], workload: Workload) -> tuple[str, ...]:
    """What becomes of the clips' frames, most frequent first, a line per kind.

    Args:
        before: the clips of the manifest.
        workload: the micro-batches that they became.
    """
    sources: Mapping[str, Clip] = {clip.id: clip for clip in before}
    kinds: Counter[str] = Counter()
    for iteration in workload.iterations:
        for batch in iteration.micro_batches:
            for clip in batch.clips:
                kinds[_kind(sources[clip.id], clip, batch.shape.frames)] += 1
    return tuple(f"{count} clips: {kind}" for kind, count in kinds.most_common())


def _at_rate(clip: Clip, fps: float) -> Clip:
    if clip.shape.frames == 1 or clip.latents or clip.fps <= fps:
        return clip
    # Frame number n of the result is the nearest one to n / fps seconds.
    frames = math.floor((clip.shape.frames - 0.5) * fps / clip.fps - 1e-9) + 1
    return replace(clip, shape=replace(clip.shape, frames=max(1, frames)), train_fps=fps)


def _kind(source: Clip, clip: Clip, trained: int) -> str:
    if source.latents:
        return f"cached latents of {trained} frames"
    rate = f" at {source.fps:g} fps" if source.fps else ""
    text = f"{source.shape.frames} frames{rate}"
    if clip.train_fps:
        text += f" -> {clip.shape.frames} at {clip.train_fps:g} fps"
    return text if trained == clip.shape.frames else f"{text} -> {trained} trained"
