"""Which clip files the runtime can read, checked before any rank starts; knows no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.workload import MicroBatch

READABLE = (".npy",)


def check_files(batches: Iterable[MicroBatch]) -> None:
    """Refuses clips whose file is missing or of a kind that cannot be read.

    Raises:
        InputError: names the clip and its file.
    """
    for batch in batches:
        for clip in batch.clips:
            if clip.path:
                check_file(clip.path, f"clip {clip.id}")


def check_file(path: str, where: str) -> None:
    """Refuses one file that is missing or of a kind that cannot be read."""
    if Path(path).suffix not in READABLE:
        what = f"cannot read frames from {path}"
        raise InputError(what, where=where, hint="a .npy file of uint8 (frames, height, width, 3)")
    if not Path(path).is_file():
        hint = "another path, or an empty one for synthetic frames"
        raise InputError(f"the file {path} does not exist", where=where, hint=hint)
