"""Decodes videos and images with PyAV (the extra ``decode``); knows no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arachne_opt.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    import numpy as np

VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".m4v", ".gif")
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a file really holds, every frame decoded; ``fps`` is 0 where it names no rate."""

    frames: int
    height: int
    width: int
    fps: float = 0.0


def require_decoder(path: str, where: str) -> None:
    """Refuses to go on where PyAV is not installed."""
    if importlib.util.find_spec("av") is None:
        what = f"decoding {path} needs PyAV"
        raise MissingDependencyError(what, where=where, hint="pip install 'arachne-opt[decode]'")


def frame_numbers(count: int, fps: float, train_fps: float) -> tuple[int, ...]:
    """Which frames of a file make ``count`` frames at another rate: the nearest in time."""
    step = fps / train_fps if train_fps else 1.0
    # Halves go up: Python's round would skip unevenly.
    return tuple(int(number * step + 0.5) for number in range(count))


def decode_frames(path: str, numbers: Sequence[int], where: str) -> Iterator[np.ndarray]:
    """The frames with the given ascending numbers as uint8 (H, W, 3); fewer at a file's end.

    Raises:
        InputError: the file is no video, or is damaged before the last of these frames.
    """
    wanted = iter(numbers)
    following = next(wanted, None)
    with _opened(path, where) as frames:
        for number, frame in enumerate(frames):
            if following is None:
                return
            while number == following:
                yield frame.to_ndarray(format="rgb24")
                following = next(wanted, None)


def file_facts(path: str, where: str) -> FileFacts:
    """Decodes a whole file and says what it holds.

    Raises:
        InputError: the file is no video, or is damaged.
    """
    count, height, width, fps = 0, 0, 0, 0.0
    with _opened(path, where) as frames:
        for frame in frames:
            count += 1
            height, width = frame.height, frame.width
        fps = frames.fps
    if count == 0:
        raise InputError(f"{path} holds no frame", where=where)
    return FileFacts(frames=count, height=height, width=width, fps=fps)


class _Frames:
    """The decoded frames of a stream, with its rate."""

    def __init__(self, frames: Iterator[Any], fps: float) -> None:
        self._frames = frames
        self.fps = fps

    def __iter__(self) -> Iterator[Any]:
        return self._frames


@contextmanager
def _opened(path: str, where: str) -> Iterator[_Frames]:
    """The decoded frames of a file's first video stream; damage is an error, never concealed."""
    import av

    try:
        with av.open(path) as container:
            if not container.streams.video:
                raise InputError(f"{path} has no video stream", where=where)
            stream = container.streams.video[0]
            stream.codec_context.options = {"err_detect": "explode"}
            fps = float(stream.average_rate or 0)
            yield _Frames(_sound(container.decode(stream), path, where), fps)
    except (av.FFmpegError, OSError) as error:
        raise InputError(f"cannot decode {path}: {error}", where=where) from error


def _sound(frames: Iterator[Any], path: str, where: str) -> Iterator[Any]:
    for number, frame in enumerate(frames):
        if frame.is_corrupt:
            raise InputError(f"frame {number} of {path} is damaged", where=where)
        yield frame
