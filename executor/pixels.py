"""Pixels of a clip at the size of its micro-batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from arachne_opt.errors import InputError
from arachne_opt.executor.pixel_files import check_file
from arachne_opt.executor.seeds import clip_pixels
from arachne_opt.workload import Clip, Shape


def load_pixels(clip: Clip, shape: Shape) -> Tensor:
    """Frames as (3, frames, height, width) in [-1, 1]; synthetic where the clip has no path.

    Raises:
        InputError: the file is missing, of another kind, or has too few frames.
    """
    if not clip.path:
        return clip_pixels(clip.id, (3, shape.frames, shape.height, shape.width))
    frames = _read(clip)[: shape.frames]
    if len(frames) < shape.frames:
        what = f"{clip.path} has {len(frames)} frames, its micro-batch needs {shape.frames}"
        raise InputError(what, where=f"clip {clip.id}")
    pixels_FCHW = torch.from_numpy(np.array(frames)).permute(0, 3, 1, 2).float() / 127.5 - 1
    wanted = (shape.height, shape.width)
    if tuple(pixels_FCHW.shape[2:]) != wanted:
        pixels_FCHW = functional.interpolate(
            pixels_FCHW, size=wanted, mode="bilinear", antialias=True
        )
    return pixels_FCHW.transpose(0, 1).contiguous()


def _read(clip: Clip) -> np.ndarray:
    where = f"clip {clip.id}"
    check_file(clip.path, where)
    try:
        frames: np.ndarray = np.load(clip.path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {clip.path}: {error}", where=where) from error
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3:
        what = f"{clip.path} holds {frames.dtype} of shape {frames.shape}"
        raise InputError(what, where=where, hint="uint8 of shape (frames, height, width, 3)")
    return frames
