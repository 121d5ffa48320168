"""Bucket tables of the public artifact: configuration file, label, frames to clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from arachne_opt.buckets import Bucket, BucketTable, label_shape
from arachne_opt.errors import InputError
from arachne_opt.importers.public_json import read_public_json


def read_bucket_tables(path: str | Path, *, aspect: float = 9 / 16) -> dict[str, BucketTable]:
    """The tables of a file by name; a label such as ``960px`` becomes a shape of that area.

    Args:
        path: file with configuration name, label, frames and ``[probability, clips]``.
        aspect: height over width of the shapes; the files give areas only.
    """
    file = Path(path)
    value = read_public_json(file)
    tables = {
        name.removesuffix(".py"): _table(name.removesuffix(".py"), labels, aspect, str(file))
        for name, labels in value.items()
        if isinstance(labels, dict)
    }
    if not tables:
        raise InputError("the file holds no bucket table", where=str(file))
    return tables


def _table(name: str, labels: dict[str, Any], aspect: float, where: str) -> BucketTable:
    try:
        buckets = [
            Bucket(shape=label_shape(label, int(frames), aspect=aspect), batch=int(batch))
            for label, rows in labels.items()
            for frames, (_, batch) in rows.items()
        ]
        return BucketTable(name=name, buckets=tuple(buckets))
    except (InputError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"malformed table {name!r}: {error}", where=where) from error
