"""How many samples of which lengths musubi-tuner takes from a video."""

from __future__ import annotations

from collections.abc import Callable

from arachne_opt.importers.node import Node
from arachne_opt.suggest import did_you_mean

DEFAULT_MAX_FRAMES = 129
_STEP = 4  # frames of a latent frame after the first


def samples(frames: int, dataset: Node) -> list[int]:
    """Frames of every sample of a video.

    Raises:
        InputError: an unknown extraction, or a number that is none.
    """
    method = dataset.find("frame_extraction")
    name = method.text() if method else "head"
    if name == "full":
        limit = dataset.find("max_frames")
        most = min(frames, limit.whole(1) if limit else DEFAULT_MAX_FRAMES)
        return [(most - 1) // _STEP * _STEP + 1]
    if name not in _COUNTS:
        assert method is not None  # "head" is known
        known = (*_COUNTS, "full")
        what = f"unknown frame_extraction {name!r}{did_you_mean(name, known)}"
        raise method.error(what, f"one of {', '.join(known)}")
    parameter = {"slide": "frame_stride", "uniform": "frame_sample"}.get(name)
    number = dataset.find(parameter) if parameter else None
    chosen = number.whole(1) if number else 1
    wanted = targets(dataset)
    return [n for n in wanted if n <= frames for _ in range(_COUNTS[name](frames, n, chosen))]


def targets(dataset: Node) -> list[int]:
    """``target_frames``, each rounded down to 4 n + 1; one frame by default."""
    found = dataset.find("target_frames")
    if found is None:
        return [1]
    numbers = [(item.whole(1) - 1) // _STEP * _STEP + 1 for item in found.items()]
    if not numbers:
        raise found.error("target_frames is empty", "target_frames = [1, 25, 45]")
    return sorted(set(numbers))


_COUNTS: dict[str, Callable[[int, int, int], int]] = {
    "head": lambda frames, n, _: 1,
    "chunk": lambda frames, n, _: frames // n,
    "slide": lambda frames, n, stride: (frames - n) // stride + 1,
    "uniform": lambda frames, n, count: count,
}
