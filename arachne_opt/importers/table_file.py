"""Rows of CSV and Parquet files as nodes that know their lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.importers.node import Node, read_text

_ROWS_AT_ONCE = 1024


def read_csv_file(path: str | Path) -> list[Node | InputError]:
    """The rows of a CSV file with a header; a row of another length is an error.

    Raises:
        InputError: no such file, no header, or a double column.
    """
    file = str(path)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(header, file)
        return list(_csv_rows(reader, header, file))
    except csv.Error as error:
        what, hint = f"no valid CSV: {error}", "closing every quote"
        raise InputError(what, where=f"{file}:{max(1, reader.line_num)}", hint=hint) from error


def read_parquet_rows(path: str | Path, wanted: Sequence[str]) -> list[Node | InputError]:
    """Some columns of a Parquet file, those that it has, row by row; rows are counted from 1.

    Raises:
        InputError: no such file, or no Parquet.
        MissingDependencyError: PyArrow is not installed.
    """
    file = str(path)
    parquet, error_kind = _parquet(file)
    values: list[Any] = []
    try:
        with parquet.ParquetFile(path) as opened:
            names = opened.schema_arrow.names
            columns = [name for name in wanted if name in names]
            if not columns:
                what = f"none of the columns {', '.join(wanted)} is there"
                raise InputError(what, where=f"{file}:row 1", hint=f"a file with them, not {names}")
            for batch in opened.iter_batches(_ROWS_AT_ONCE, columns=columns):
                values += batch.to_pylist()
    except (error_kind, OSError) as error:
        what = f"no readable Parquet file: {error}"[:300]
        raise InputError(what, where=f"{file}:row 1", hint="writing it again") from error
    return [
        Node(value, file, {(): number}, unit="row ", loose=True)
        for number, value in enumerate(values, 1)
    ]


def parquet_names(path: str | Path) -> tuple[str, ...]:
    """The columns of a Parquet file."""
    parquet, error_kind = _parquet(str(path))
    try:
        return tuple(parquet.read_schema(path).names)
    except (error_kind, OSError) as error:
        what = f"no readable Parquet file: {error}"[:300]
        raise InputError(what, where=f"{path}:row 1", hint="writing it again") from error


def _parquet(file: str) -> tuple[Any, type[Exception]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        what, hint = "reading Parquet needs PyArrow", "pip install 'arachne-opt[parquet]'"
        raise MissingDependencyError(what, where=file, hint=hint) from error
    return pyarrow.parquet, pyarrow.ArrowException


def _check_header(header: list[str], file: str) -> None:
    if not any(header):
        raise InputError("the file has no header", where=f"{file}:1", hint="a line of column names")
    if len(set(header)) < len(header):
        double = next(name for name in header if header.count(name) > 1)
        what = f"the column {double!r} is there twice"
        raise InputError(what, where=f"{file}:1", hint="another name for one of them")


def _csv_rows(reader: Any, header: list[str], file: str) -> Iterator[Node | InputError]:  # noqa: ANN401
    line = reader.line_num + 1
    for cells in reader:
        if len(cells) == len(header):
            yield Node(dict(zip(header, cells, strict=True)), file, {(): line}, loose=True)
        elif cells:
            what = f"{len(cells)} fields, the header has {len(header)}"
            hint = "quotes around texts with commas"
            yield InputError(what, where=f"{file}:{line}", hint=hint)
        line = reader.line_num + 1
