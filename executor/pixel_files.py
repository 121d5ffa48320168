"""Which clip files the runtime can read, checked before any rank starts; knows no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.parquet_latents import SUFFIX, is_parquet, latents_shape_of
from arachne_opt.executor.video_files import IMAGES, VIDEOS, require_decoder
from arachne_opt.workload import Clip, MicroBatch, Shape

LATENT_SUFFIXES = (".safetensors", SUFFIX)
# As the format itself bounds it.
_LARGEST_HEADER = 100_000_000

READABLE = (".npy", *VIDEOS, *IMAGES)


def check_files(batches: Iterable[MicroBatch], config: ModelConfig) -> None:
    """Refuses clips whose file is missing, of a kind that cannot be read, or for another model.

    Damage inside a file shows when it is read: see ``work.ModelWork``.

    Raises:
        InputError: names the clip and its file.
        MissingDependencyError: a decoder is not installed.
    """
    for batch in batches:
        for clip in batch.clips:
            where = f"clip {clip.id}"
            if clip.embeddings:
                check_latents(clip.embeddings, where)
            if clip.latents:
                check_latents(clip.latents, where)
                _check_size(clip, batch.shape, config)
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


def latents_shape(path: str, clip: str) -> tuple[int, ...]:
    """Shape of the tensor ``latents`` of a clip, by the header of a safetensors file.

    Raises:
        InputError: the file is damaged, or has no such tensor.
    """
    if is_parquet(path):
        return latents_shape_of(path, clip)
    where = f"clip {clip}"
    try:
        with Path(path).open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(size, _LARGEST_HEADER)))
            return tuple(int(edge) for edge in header["latents"]["shape"])
    except KeyError as error:
        raise InputError(f"{path} has no tensor {error}", where=where) from error
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"cannot read {path}: {error}", where=where) from error


def _check_size(clip: Clip, shape: Shape, config: ModelConfig) -> None:
    """Refuses latents of another shape or model; a damaged file is left for the run to tell."""
    try:
        found = latents_shape(clip.latents, clip.id)
    except InputError:
        return
    wanted = (config.carried_channels, *config.latent_size(shape))
    if found != wanted:
        what = f"the latents in {clip.latents} are {found}, clips of {shape} need {wanted}"
        hint = "a shape of its own for the clip, or encoding it anew"
        raise InputError(what, where=f"clip {clip.id}", hint=hint)


def check_latents(path: str, where: str) -> None:
    """Refuses one file of latents or embeddings that is missing or of another kind."""
    if Path(path).suffix.lower() not in LATENT_SUFFIXES:
        what, kinds = f"cannot read latents from {path}", " or ".join(LATENT_SUFFIXES)
        raise InputError(what, where=where, hint=f"a {kinds} file with the tensor latents")
    if not Path(path).is_file():
        raise InputError(f"the file {path} does not exist", where=where)
