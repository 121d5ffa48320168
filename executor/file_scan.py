"""Reads the whole file of a clip and says what is wrong with it; knows no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.executor.parquet_latents import is_parquet, read_row
from arachne_opt.executor.pixel_files import check_file, check_latents, latents_shape
from arachne_opt.executor.video_files import IMAGES, file_facts
from arachne_opt.quarantine import Quarantined
from arachne_opt.workload import Clip

_THREADS = 2


def scan_files(
    clips: Sequence[Clip], on_progress: Callable[[int], None] = lambda done: None
) -> tuple[Quarantined, ...]:
    """The clips whose files cannot be used; those without files are well.

    Args:
        clips: of a manifest.
        on_progress: told the number of clips that are done.

    Raises:
        MissingDependencyError: a decoder is not installed.
    """
    found = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for done, (clip, reason) in enumerate(zip(clips, pool.map(_reason, clips), strict=True), 1):
            if reason:
                path = clip.latents or clip.path
                found.append(Quarantined(id=clip.id, path=path, reason=reason))
            on_progress(done)
    return tuple(found)


def _reason(clip: Clip) -> str:
    """What is wrong with the file of a clip, empty where nothing is."""
    try:
        if clip.latents:
            check_latents(clip.latents, clip.id)
            _check_tensors(clip.latents, clip.id)
        elif clip.path:
            check_file(clip.path, clip.id)
            _check_frames(clip)
    except InputError as error:
        return error.what
    return ""


def _check_frames(clip: Clip) -> None:
    frames, height, width = _facts(clip.path, clip.id)
    wanted = clip.shape
    if frames < wanted.frames:
        raise InputError(f"{clip.path} has {frames} frames, the manifest says {wanted.frames}")
    if (height, width) != (wanted.height, wanted.width):
        size = f"{wanted.height}x{wanted.width}"
        raise InputError(f"{clip.path} is {height}x{width}, the manifest says {size}")


def _facts(path: str, where: str) -> tuple[int, int, int]:
    if path.endswith(".npy"):
        import numpy as np

        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"cannot read {path}: {error}", where=where) from error
        if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3:
            raise InputError(f"{path} holds {array.dtype} of shape {array.shape}", where=where)
        return int(array.shape[0]), int(array.shape[1]), int(array.shape[2])
    facts = file_facts(path, where)
    return 1 if path.lower().endswith(IMAGES) else facts.frames, facts.height, facts.width


def _check_tensors(path: str, where: str) -> None:
    """Reads every tensor; bfloat16, which numpy does not have, only by the header."""
    import numpy as np
    from safetensors import SafetensorError, safe_open

    latents_shape(path, where)
    if is_parquet(path):
        _check_row(path, where)
        return
    try:
        with safe_open(path, framework="np") as file:
            for name in _readable(file.keys(), path):
                if not np.isfinite(file.get_tensor(name)).all():
                    raise InputError(f"{name!r} of {path} is not finite", where=where)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read {path}: {error}", where=where) from error


def _check_row(path: str, clip: str) -> None:
    """Reads every tensor of a clip; bfloat16 is only measured."""
    import numpy as np

    for name, stored in read_row(path, clip).items():
        if stored.dtype == "bfloat16":
            continue
        if not np.isfinite(np.frombuffer(stored.data, dtype=stored.dtype)).all():
            raise InputError(f"{name!r} of {path} is not finite", where=clip)


def _readable(names: Iterable[str], path: str) -> list[str]:
    with Path(path).open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return [name for name in names if header[name]["dtype"] != "BF16"]
