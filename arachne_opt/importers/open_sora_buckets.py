"""Bucket configurations of Open-Sora: ``bucket_config = {"720p": {51: (0.5, 2)}}`` in Python.

By label of a resolution and number of frames: probability (or one per step), and clips of a batch.
Areas of labels and aspect ratios are those of hpcaitech/Open-Sora (Apache-2.0), datasets/aspect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from arachne_opt.importers.bucket_sizes import ImportedBuckets, inside_area, table_of
from arachne_opt.importers.literal_file import read_constant
from arachne_opt.importers.node import Node, read_text
from arachne_opt.workload import Shape

NAME = "bucket_config"
# Height over width.
ASPECTS = (0.39, 0.42, 0.48, 0.5, 0.52, 9 / 16, 0.66, 0.75)
MULTIPLE = 16
_LABEL = re.compile(r"(\d+)(p|px|)")
_DELETE = "_delete_"


def recognise(source: Path) -> str:
    """Why a file looks like such a configuration, empty where it does not."""
    if source.suffix.lower() == ".py" and source.is_file() and NAME in read_text(source):
        return f"a Python file that sets {NAME}"
    return ""


def read(source: Path, batch: int = 1) -> ImportedBuckets:
    """The buckets of a configuration; ``batch`` is not used, as the file has its own.

    Raises:
        InputError: the file cannot be read, or an entry is none.
    """
    del batch
    config = read_constant(source, NAME)
    unused: list[str] = []
    shares: list[str] = []
    wanted = [
        (shape, clips)
        for label in config.names()
        if label != _DELETE
        for shape, clips in _label(config.child(label), unused, shares)
    ]
    notes = []
    if unused:
        notes.append(f"never used by its probability or without a batch: {', '.join(unused)}")
    if shares:
        text = "probabilities send clips to smaller buckets; here every clip takes its largest"
        notes.append(f"{text} ({len(shares)} buckets)")
    return table_of(source.stem, wanted, notes, where=config.where)


def label_area(label: Node) -> int:
    """Pixels of a label: ``720p`` is 720 x 1280, ``256px`` and ``256`` are squares."""
    match = _LABEL.fullmatch(label.key)
    if match is None or int(match[1]) < MULTIPLE:
        raise label.error(f"unknown resolution {label.key!r}", '"720p", "256px" or "1024"')
    side = int(match[1])
    return side * (round(side * 8 / 9) * 2) if match[2] == "p" else side * side


def _label(label: Node, unused: list[str], shares: list[str]) -> Iterator[tuple[Shape, int]]:
    area = label_area(label)
    for key in label.names():
        entry = label.child(key)
        if not key.isdigit() or int(key) < 1:
            raise entry.error(f"{key!r} is no number of frames", "1 for images, else frames")
        pair = list(entry.items())
        if len(pair) != 2:
            what = f"expected (probability, batch), found {len(pair)} values"
            raise entry.error(what, f"{key}: (1.0, 4)")
        share = _probability(pair[0])
        if share == 0 or pair[1].value in (None, 0):
            unused.append(f"{label.key} x {key}")
            continue
        if share < 1:
            shares.append(f"{label.key} x {key}")
        clips = pair[1].whole(1)
        sizes = {inside_area(area, a, MULTIPLE) for a in (*ASPECTS, 1.0, *(1 / a for a in ASPECTS))}
        for height, width in sorted(sizes):
            yield Shape(frames=int(key), height=height, width=width), clips


def _probability(found: Node) -> float:
    """The probability that a clip stays in a bucket; of two steps their product."""
    parts = list(found.items()) if isinstance(found.value, list) else [found]
    share = 1.0
    for part in parts:
        if part.number() > 1:
            raise part.error(f"a probability is at most 1, not {part.value}", "a share such as 0.5")
        share *= part.number()
    return share
