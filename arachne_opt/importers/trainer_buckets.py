"""Bucket configurations of finetrainers, diffusion-pipe, musubi-tuner and FastVideo."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers import diffusion_pipe, fastvideo, finetrainers, musubi
from arachne_opt.importers.bucket_sizes import ImportedBuckets, nearest_multiple, table_of
from arachne_opt.importers.musubi_samples import DEFAULT_MAX_FRAMES, targets
from arachne_opt.importers.node import Node
from arachne_opt.importers.table_file import read_parquet_rows
from arachne_opt.importers.toml_file import read_toml_file
from arachne_opt.workload import Shape

# Sides are rounded to this: diffusion-pipe for most models; musubi-tuner for Wan and HunyuanVideo.
DIFFUSION_PIPE_MULTIPLE, MUSUBI_MULTIPLE = 32, 16
_ENLARGED = "the trainer may enlarge clips to a bucket; here smaller clips are refused by name"


def finetrainers_buckets(source: Path, batch: int) -> ImportedBuckets:
    """``video_resolution_buckets`` [frames, height, width] and ``image_resolution_buckets``."""
    wanted: list[tuple[Shape, int]] = []
    datasets = finetrainers.datasets_of(source)
    for dataset in datasets:
        videos = dataset.find("video_resolution_buckets")
        images = dataset.find("image_resolution_buckets")
        for entry in videos.items() if videos else ():
            wanted.append((_shape(entry, ("frames", "height", "width")), batch))
        for entry in images.items() if images else ():
            wanted.append((_shape(entry, ("height", "width")), batch))
    return table_of(source.stem, wanted, (_ENLARGED,), where=datasets[0].where)


def diffusion_pipe_buckets(source: Path, batch: int) -> ImportedBuckets:
    """``size_buckets``, or ``resolutions`` x aspect ratios x ``frame_buckets``, by directory."""
    top = read_toml_file(source)
    wanted = [
        (shape, batch)
        for directory in diffusion_pipe.directories_of(top)
        for shape in _of_directory(directory, top)
    ]
    return table_of(source.stem, wanted, (_ENLARGED,), where=top.where)


def musubi_buckets(source: Path, batch: int) -> ImportedBuckets:
    """``resolution``, ``target_frames``, ``enable_bucket`` and ``batch_size`` of each dataset."""
    top = read_toml_file(source)
    wanted: list[tuple[Shape, int]] = []
    for dataset in musubi.datasets_of(top):
        size = musubi.setting(dataset, top, "batch_size")
        flag = musubi.setting(dataset, top, "enable_bucket")
        width, height = _side(musubi.setting(dataset, top, "resolution"), (960, 544))
        sizes = [(height, width)]
        if flag is not None and flag.flag():
            sizes = _around(width * height)
        clips = size.whole(1) if size else batch
        for frames, (high, wide) in product(_lengths(dataset), sizes):
            wanted.append((Shape(frames=frames, height=high, width=wide), clips))
    return table_of(source.stem, wanted, (_ENLARGED,), where=top.where)


def fastvideo_buckets(source: Path, batch: int) -> ImportedBuckets:
    """The shapes that the latents of a data set have: FastVideo has no configuration of them."""
    found: dict[Shape, int] = {}
    for file in fastvideo.parquet_files(source):
        for row in read_parquet_rows(file, fastvideo.COLUMNS):
            if isinstance(row, InputError):
                raise row
            shape = fastvideo.latent_shape(row)
            if shape is not None:
                found[shape] = batch
    return table_of(source.stem, found.items(), where=str(source))


def _shape(entry: Node, names: tuple[str, ...]) -> Shape:
    """A shape of numbers in a list, or joined by x."""
    if isinstance(entry.value, str):
        parts = entry.value.split("x")
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise entry.error(f"{entry.value!r} is no size", "x".join(["49", "480", "720"]))
        numbers = [int(part) for part in parts]
    else:
        numbers = [item.whole(1) for item in entry.items()]
    if len(numbers) != len(names):
        raise entry.error(f"{len(numbers)} numbers for {', '.join(names)}", f"[{', '.join(names)}]")
    frames, height, width = numbers if len(numbers) == 3 else (1, *numbers)
    return Shape(frames=frames, height=height, width=width)


def _of_directory(directory: Node, top: Node) -> Iterator[Shape]:
    def setting(key: str) -> Node | None:
        return directory.find(key) or top.find(key)

    sizes = setting("size_buckets")
    if sizes is not None:
        for entry in sizes.items():
            numbers = [item.whole(1) for item in entry.items()]
            if len(numbers) != 3:
                raise entry.error(f"{len(numbers)} numbers", "[width, height, frames]")
            yield Shape(frames=numbers[2], height=numbers[1], width=numbers[0])
        return
    resolutions = setting("resolutions")
    if resolutions is None:
        raise directory.error("neither resolutions nor size_buckets is set", "resolutions = [512]")
    areas = [math.prod(_side(entry, (0, 0))) for entry in resolutions.items()]
    lengths = setting("frame_buckets")
    frames = {1, *(entry.whole(1) for entry in lengths.items())} if lengths else {1}
    for area, ratio, length in product(areas, _ratios(setting), sorted(frames)):
        width = nearest_multiple(math.sqrt(area * ratio), DIFFUSION_PIPE_MULTIPLE)
        height = nearest_multiple(math.sqrt(area / ratio), DIFFUSION_PIPE_MULTIPLE)
        yield Shape(frames=length, height=height, width=width)


def _ratios(setting: Callable[[str], Node | None]) -> list[float]:
    """Width over height of every aspect bucket."""
    enabled, given = setting("enable_ar_bucket"), setting("ar_buckets")
    if enabled is None or not enabled.flag():
        return [1.0]
    if given is not None:
        return [_ratio(entry) for entry in given.items()]
    low, high, count = (setting(k) for k in ("min_ar", "max_ar", "num_ar_buckets"))
    if low is None or high is None or count is None:
        missing = "min_ar, max_ar and num_ar_buckets, or ar_buckets"
        raise enabled.error(f"enable_ar_bucket needs {missing}", "min_ar = 0.5")
    first, last, number = low.number(), high.number(), count.whole(1)
    if not 0 < first <= last:
        raise low.error(f"min_ar {first:g} to max_ar {last:g} is no range", "min_ar = 0.5")
    step = (last / first) ** (1 / (number - 1)) if number > 1 else 1.0
    return [first * step**i for i in range(number)]


def _ratio(entry: Node) -> float:
    if isinstance(entry.value, list):
        width, height = _side(entry, (0, 0))
        return width / height
    if entry.number() <= 0:
        raise entry.error("an aspect ratio must be positive", "1.5")
    return entry.number()


def _side(found: Node | None, default: tuple[int, int]) -> tuple[int, int]:
    """Width and height of a resolution: a side of a square, or both."""
    if found is None:
        return default
    if not isinstance(found.value, list):
        return found.whole(1), found.whole(1)
    numbers = [item.whole(1) for item in found.items()]
    if len(numbers) != 2:
        raise found.error(f"{len(numbers)} numbers for width and height", "[960, 544]")
    return numbers[0], numbers[1]


def _around(area: int) -> list[tuple[int, int]]:
    """Heights and widths of about an area, from half the side of its square on, in whole steps."""
    step = MUSUBI_MULTIPLE
    side = math.isqrt(area)
    short = [s for s in range(side // 2 // step * step, side + step, step) if s > 0]
    pairs = {(s, area // s // step * step) for s in short}
    return sorted(pairs | {(b, a) for a, b in pairs})


def _lengths(dataset: Node) -> list[int]:
    """Frames of the samples of a dataset."""
    if any(key.startswith("image") for key in dataset.names()):
        return [1]
    method = dataset.find("frame_extraction")
    if method is not None and method.text() == "full":
        limit = dataset.find("max_frames")
        return list(range(1, (limit.whole(1) if limit else DEFAULT_MAX_FRAMES) + 1, 4))
    return targets(dataset)
