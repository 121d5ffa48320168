"""Cached latents and embeddings of many clips in one Parquet file; knows no torch.

A row is a clip: ``id``, and for each tensor the three columns ``NAME`` (its bytes, in C order),
``NAME_shape`` and ``NAME_dtype``: float32, float16 or bfloat16. Names are ``latents``, ``text``,
``pooled`` and ``image``, as in safetensors files of single clips. A row group is read at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from arachne_opt.errors import InputError, MissingDependencyError

SUFFIX = ".parquet"
NAMES = ("latents", "text", "pooled", "image")
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
_KNOWN_FILES = 64
# Few clips at once: a rank wants some of them only.
ROWS_OF_A_GROUP = 8


class Stored(NamedTuple):
    """A tensor as it lies in a file."""

    data: bytes
    shape: tuple[int, ...]
    dtype: str


def is_parquet(path: str) -> bool:
    """Whether a file is taken for one of many clips."""
    return path.lower().endswith(SUFFIX)


def read_row(path: str, clip: str, *, names: Iterable[str] = NAMES) -> dict[str, Stored]:
    """The tensors of a clip, those of ``names`` that the file has.

    Raises:
        InputError: the file cannot be read, does not know the clip, or holds no such tensors.
        MissingDependencyError: PyArrow is not installed.
    """
    library, failure = _parquet()
    where = f"clip {clip}"
    try:
        places = _places(path, Path(path).stat().st_mtime_ns)
        if clip not in places:
            raise InputError(f"{path} has no row of the clip", where=where)
        group, row = places[clip]
        with library.ParquetFile(path) as file:
            there = set(file.schema_arrow.names)
            wanted = [name for name in names if name in there]
            columns = [column for name in wanted for column in _columns(name)]
            table = file.read_row_group(group, columns=columns).slice(row, 1).to_pylist()[0]
        return {name: _stored(table, name) for name in wanted if table[name] is not None}
    except KeyError as error:
        raise InputError(f"{path} has no column {error}", where=where) from error
    except (OSError, ValueError, TypeError, failure) as error:
        raise InputError(f"cannot read {path}: {error}", where=where) from error


def latents_shape_of(path: str, clip: str) -> tuple[int, ...]:
    """Shape of a clip's latents."""
    found = read_row(path, clip, names=("latents",))
    if "latents" not in found:
        raise InputError(f"{path} has no latents", where=f"clip {clip}")
    return found["latents"].shape


def write_rows(path: Path, rows: Iterable[tuple[str, Mapping[str, Stored]]]) -> None:
    """Writes clips by id, each with its tensors, to a new file.

    Raises:
        InputError: the file cannot be written.
        MissingDependencyError: PyArrow is not installed.
    """
    library, failure = _parquet()
    import pyarrow

    found = tuple(rows)
    values: dict[str, list[Any]] = {"id": [clip for clip, _ in found]}
    for name in NAMES:
        if not any(name in tensors for _, tensors in found):
            continue
        columns = _columns(name)
        kept = [tensors.get(name) for _, tensors in found]
        for place, column in enumerate(columns):
            values[column] = [None if item is None else item[place] for item in kept]
    try:
        table = pyarrow.table(values)
        library.write_table(table, path, row_group_size=ROWS_OF_A_GROUP)
    except (OSError, failure) as error:
        raise InputError(f"cannot write latents: {error}", where=str(path)) from error


def _columns(name: str) -> tuple[str, str, str]:
    return name, f"{name}_shape", f"{name}_dtype"


def _stored(table: Mapping[str, Any], name: str) -> Stored:
    data, shape, dtype = (table[column] for column in _columns(name))
    edges = tuple(int(edge) for edge in shape)
    if dtype not in _WIDTHS:
        raise ValueError(f"{name!r} is of {dtype!r}, not {', '.join(_WIDTHS)}")
    if len(data) != math.prod(edges) * _WIDTHS[dtype]:
        raise ValueError(f"{name!r} has {len(data)} bytes, {dtype} of {edges} takes others")
    return Stored(data, edges, dtype)


@lru_cache(_KNOWN_FILES)
def _places(path: str, _changed_ns: int) -> dict[str, tuple[int, int]]:
    """Row group and row within it of each clip of a file."""
    library, _ = _parquet()
    found: dict[str, tuple[int, int]] = {}
    with library.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["id"]).column("id").to_pylist()
            found |= {str(clip): (group, row) for row, clip in enumerate(ids)}
    return found


def _parquet() -> tuple[Any, type[Exception]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what = f"Parquet files are read with PyArrow ({error})"
        raise MissingDependencyError(what, hint="pip install 'arachne-opt[parquet]'") from error
    return pyarrow.parquet, pyarrow.ArrowException
