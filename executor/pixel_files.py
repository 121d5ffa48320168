"""Which clip files the runtime can read, checked before any rank starts; knows no torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.executor.video_files import IMAGES, VIDEOS, require_decoder
from arachne_opt.workload import MicroBatch

LATENT_SUFFIX = ".safetensors"
READABLE = (".npy", *VIDEOS, *IMAGES)


def check_files(batches: Iterable[MicroBatch]) -> None:
    """Refuses clips whose file is missing or of a kind that cannot be read.

    Damage inside a file shows when it is read: see ``work.ModelWork``.

    Raises:
        InputError: names the clip and its file.
        MissingDependencyError: a decoder is not installed.
    """
    for batch in batches:
        for clip in batch.clips:
            where = f"clip {clip.id}"
            if clip.latents:
                check_latents(clip.latents, where)
            elif clip.path:
                check_file(clip.path, where)


def check_file(path: str, where: str) -> None:
    """Refuses one file of frames that is missing or of a kind that cannot be read."""
    suffix = Path(path).suffix.lower()
    if suffix not in READABLE:
        what = f"cannot read frames from {path}"
        hint = "a video, an image, or a .npy file of uint8 (frames, height, width, 3)"
        raise InputError(what, where=where, hint=hint)
    if not Path(path).is_file():
        hint = "another path, or an empty one for synthetic frames"
        raise InputError(f"the file {path} does not exist", where=where, hint=hint)
    if suffix != ".npy":
        require_decoder(path, where)


def check_latents(path: str, where: str) -> None:
    """Refuses one file of latents that is missing or of another kind."""
    if Path(path).suffix.lower() != LATENT_SUFFIX:
        what = f"cannot read latents from {path}"
        raise InputError(what, where=where, hint=f"a {LATENT_SUFFIX} file with the tensor latents")
    if not Path(path).is_file():
        raise InputError(f"the file {path} does not exist", where=where)
