"""Pixels of a clip at the size of its micro-batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from arachne_opt.errors import InputError
from arachne_opt.executor.pixel_files import check_file
from arachne_opt.executor.seeds import clip_pixels
from arachne_opt.executor.video_files import decode_frames, frame_numbers
from arachne_opt.workload import Clip, Shape


def load_pixels(clip: Clip, shape: Shape) -> Tensor:
    """Frames as (3, frames, height, width) in [-1, 1]; synthetic where the clip has no path.

    Raises:
        InputError: the file is missing, of another kind, or has too few frames.
    """
    if not clip.path:
        return clip_pixels(clip.id, (3, shape.frames, shape.height, shape.width))
    return to_pixels(read_frames(clip, shape))


def to_pixels(frames_FHWC: Tensor) -> Tensor:
    """Frames of 8 bits as (3, frames, height, width) in [-1, 1]."""
    return frames_FHWC.permute(3, 0, 1, 2).float() / 127.5 - 1


def read_frames(clip: Clip, shape: Shape) -> Tensor:
    """The frames of a clip's file as uint8 (frames, height, width, 3).

    Frames are picked at the rate at which the clip is trained. They are scaled until they cover
    the shape, and what sticks out is cut off evenly on both sides.

    Raises:
        InputError: the file is missing, damaged, of another kind, or has too few frames.
    """
    where = f"clip {clip.id}"
    check_file(clip.path, where)
    numbers = frame_numbers(shape.frames, clip.fps, clip.train_fps)
    source = _array_frames(clip, numbers) if clip.path.endswith(".npy") else None
    if source is None:
        source = decode_frames(clip.path, numbers, where)
    frames = [_covering(frame, shape) for frame in source]
    if len(frames) < shape.frames:
        there = (
            f"has {len(frames)} frames"
            if not clip.train_fps
            else (f"has {len(frames)} frames at {clip.train_fps:g} per second")
        )
        what = f"{clip.path} {there}, its micro-batch needs {shape.frames}"
        raise InputError(what, where=where)
    return torch.stack(frames)


def _covering(frame_HWC: np.ndarray, shape: Shape) -> Tensor:
    """One frame at the size of the shape."""
    frame = torch.from_numpy(np.array(frame_HWC))
    height, width = frame.shape[:2]
    if (height, width) == (shape.height, shape.width):
        return frame
    scale = max(shape.height / height, shape.width / width)
    size = max(shape.height, round(height * scale)), max(shape.width, round(width * scale))
    scaled = functional.interpolate(
        frame.permute(2, 0, 1).unsqueeze(0), size=size, mode="bilinear", antialias=True
    )
    top, left = (size[0] - shape.height) // 2, (size[1] - shape.width) // 2
    cut = scaled[0, :, top : top + shape.height, left : left + shape.width]
    return cut.permute(1, 2, 0).contiguous()


def _array_frames(clip: Clip, numbers: Iterable[int]) -> Iterable[np.ndarray]:
    where = f"clip {clip.id}"
    try:
        frames: np.ndarray = np.load(clip.path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {clip.path}: {error}", where=where) from error
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
        what = f"{clip.path} holds {frames.dtype} of shape {frames.shape}"
        raise InputError(what, where=where, hint="uint8 of shape (frames, height, width, 3)")
    return [frames[number] for number in numbers if number < len(frames)]
