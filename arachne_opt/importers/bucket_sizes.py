"""Sizes of buckets, and tables made of what several parts of a configuration say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from arachne_opt.buckets import Bucket, BucketTable
from arachne_opt.errors import InputError
from arachne_opt.workload import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedBuckets:
    """A bucket table, with what it cannot say."""

    table: BucketTable
    notes: tuple[str, ...] = ()


def nearest_multiple(size: float, multiple: int) -> int:
    """The multiple nearest to a size, at least one."""
    return max(multiple, round(size / multiple) * multiple)


def inside_area(area: float, aspect: float, multiple: int) -> tuple[int, int]:
    """Height and width of the largest size of an aspect (height over width) within an area."""
    height = math.sqrt(area * aspect)
    return _below(height, multiple), _below(area / height, multiple)


def table_of(
    name: str, wanted: Iterable[tuple[Shape, int]], notes: Iterable[str] = (), *, where: str
) -> ImportedBuckets:
    """The table of some shapes with batches; a double shape gets the smaller batch, said so."""
    batches: dict[Shape, int] = {}
    remarks = list(notes)
    for shape, batch in wanted:
        known = batches.get(shape)
        batches[shape] = batch if known is None else min(known, batch)
        if known is not None and known != batch:
            remarks.append(
                f"two batches for {shape}, {known} and {batch}: the smaller one is taken"
            )
    if not batches:
        raise InputError("no bucket is left", where=where, hint="a bucket with a batch size")
    buckets = tuple(Bucket(shape=s, batch=b) for s, b in sorted(batches.items()))
    return ImportedBuckets(table=BucketTable(name=name, buckets=buckets), notes=tuple(remarks))


def _below(size: float, multiple: int) -> int:
    return max(multiple, math.floor(size / multiple + 1e-9) * multiple)
