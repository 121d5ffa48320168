"""Small real videos and images, encoded on the spot."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

CODECS = {".mp4": "mpeg4", ".mkv": "ffv1", ".avi": "mjpeg", ".png": "png", ".jpg": "mjpeg"}


def frames_of(count: int, height: int, width: int) -> np.ndarray:
    """Frame n is grey 10 n, with a bright left half."""
    frames = np.zeros((count, height, width, 3), dtype=np.uint8)
    frames += (10 * np.arange(count, dtype=np.uint8))[:, None, None, None]
    frames[:, :, : width // 2] += 100
    return frames


def write_video(path: Path, frames: np.ndarray, fps: int = 8) -> None:
    """Encodes frames with the codec of the suffix."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(CODECS[path.suffix], rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = {"ffv1": "bgr0", "png": "rgb24", "mjpeg": "yuvj420p"}.get(
            CODECS[path.suffix], "yuv420p"
        )
        stream.time_base = Fraction(1, fps)
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())


def damage(path: Path) -> None:
    """Overwrites the middle of a file, so that it opens but does not decode to its end."""
    data = bytearray(path.read_bytes())
    start = len(data) // 3
    data[start : start + len(data) // 3] = b"\x00" * (len(data) // 3)
    path.write_bytes(data)
