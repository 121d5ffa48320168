"""Bucket tables: the shapes that clips are resized to, and how many clips share a micro-batch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.fields import Fields
from arachne_opt.workload import Shape

BUCKETS_FORMAT = "arachne.buckets/1"

# Aspect ratios within 10 % of the nearest one count as equally near.
_ASPECT_SLACK = math.log(1.10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """One shape with the clips of a full micro-batch."""

    shape: Shape
    batch: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"a batch needs at least one clip, not {self.batch}")


@dataclass(frozen=True, kw_only=True)
class BucketTable:
    """Buckets of a training job, at most one per shape."""

    name: str
    buckets: tuple[Bucket, ...]

    def __post_init__(self) -> None:
        if not self.buckets:
            raise InputError("a bucket table needs a bucket", where=self.name)
        shapes = [bucket.shape for bucket in self.buckets]
        if len(set(shapes)) != len(shapes):
            double = next(shape for shape in shapes if shapes.count(shape) > 1)
            raise InputError(f"two buckets of shape {double}", where=self.name)

    @cached_property
    def _videos(self) -> tuple[Bucket, ...]:
        return tuple(b for b in self.buckets if b.shape.frames > 1)

    @cached_property
    def _images(self) -> tuple[Bucket, ...]:
        return tuple(b for b in self.buckets if b.shape.frames == 1)

    def assign(self, shape: Shape) -> Bucket | str:
        """The bucket of a clip, or the reason why none takes it.

        Images go to buckets of one frame, videos to the others. A clip is never enlarged: the
        bucket has neither more frames nor a larger area. Of these buckets the ones with the
        nearest aspect ratio stay (10 % more is as near), then those with the largest area, then
        the one with the most frames.
        """
        kind = self._images if shape.frames == 1 else self._videos
        if not kind:
            return f"the table has no bucket for {'images' if shape.frames == 1 else 'videos'}"
        short = [b for b in kind if b.shape.frames <= shape.frames]
        if not short:
            least = min(b.shape.frames for b in kind)
            return f"{shape.frames} frames, the shortest bucket has {least}"
        small = [b for b in short if _area(b.shape) <= _area(shape)]
        if not small:
            least_area = min((b.shape for b in short), key=_area)
            size = f"{shape.height} x {shape.width}"
            return f"{size} is smaller than {least_area.height} x {least_area.width}"
        nearest = min(_aspect_distance(b.shape, shape) for b in small)
        near = [b for b in small if _aspect_distance(b.shape, shape) <= nearest + _ASPECT_SLACK]
        return max(
            near,
            key=lambda b: (_area(b.shape), b.shape.frames, -_aspect_distance(b.shape, shape)),
        )


def buckets_from_dict(value: object, where: str) -> BucketTable:
    """The table that a JSON object describes."""
    top = Fields(value, where, ("format", "name", "buckets"))
    top.require_format(BUCKETS_FORMAT)
    keys = ("frames", "height", "width", "batch")
    rows = [
        Fields(raw, f"{where}: bucket {number}", keys)
        for number, raw in enumerate(top.items("buckets"), 1)
    ]
    buckets = [
        Bucket(
            shape=Shape(
                frames=row.integer("frames", minimum=1),
                height=row.integer("height", minimum=1),
                width=row.integer("width", minimum=1),
            ),
            batch=row.integer("batch", minimum=1),
        )
        for row in rows
    ]
    try:
        return BucketTable(name=top.text("name", "buckets"), buckets=tuple(buckets))
    except InputError as error:
        raise InputError(error.what, where=where) from error


def buckets_to_dict(table: BucketTable) -> dict[str, Any]:
    """JSON values that ``buckets_from_dict`` reads back."""
    rows = [
        {
            "frames": bucket.shape.frames,
            "height": bucket.shape.height,
            "width": bucket.shape.width,
            "batch": bucket.batch,
        }
        for bucket in table.buckets
    ]
    return {"format": BUCKETS_FORMAT, "name": table.name, "buckets": rows}


def read_buckets(path: str | Path) -> BucketTable:
    """The table of a JSON file ``arachne.buckets/1``."""
    file = Path(path)
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the bucket table: {error}", where=str(file)) from error
    return buckets_from_dict(value, str(file))


def label_shape(label: str, frames: int, *, aspect: float = 9 / 16, multiple: int = 16) -> Shape:
    """The shape of a label such as ``960px``: the side of a square of the same area.

    Args:
        label: side in pixels with the ending ``px``.
        frames: frames of the shape.
        aspect: height over width.
        multiple: height is rounded down to a multiple of this, and the width that keeps the area
            to the nearest one. This gives sizes of public logs: 720 x 1280, 1072 x 1936, 352 x 656.
    """
    digits = label.removesuffix("px")
    if not (label.endswith("px") and digits.isdecimal() and int(digits) >= multiple):
        raise InputError(f"cannot read the bucket label {label!r}", hint='a label such as "960px"')
    area = int(digits) ** 2
    height = math.floor(math.sqrt(area * aspect) / multiple + 1e-9) * multiple
    height = max(height, multiple)
    width = max(round(area / height / multiple) * multiple, multiple)
    return Shape(frames=frames, height=height, width=width)


def _area(shape: Shape) -> int:
    return shape.height * shape.width


def _aspect_distance(a: Shape, b: Shape) -> float:
    """How far apart two aspect ratios are, on a logarithmic scale."""
    return abs(math.log(a.height * b.width / (a.width * b.height)))
