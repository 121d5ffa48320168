"""Manifests of Open-Sora: CSV or Parquet with path, text, num_frames, height, width, fps.

Columns as in hpcaitech/Open-Sora (Apache-2.0), docs of data processing. Sizes that are missing are
read from the files; 0, which its tools write for files that they could not open, is refused.
"""

from __future__ import annotations

from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers.media import (
    Collector,
    Imported,
    ImportOptions,
    draft_of_row,
    in_folder,
    optional_text,
)
from arachne_opt.importers.node import Node, read_text
from arachne_opt.importers.table_file import parquet_names, read_csv_file, read_parquet_rows

COLUMNS = ("id", "path", "text", "num_frames", "height", "width", "fps")


def recognise(source: Path) -> str:
    """Why a file looks like such a manifest, empty where it does not."""
    names: tuple[str, ...] = ()
    if source.suffix.lower() == ".csv" and source.is_file():
        names = tuple(read_text(source).split("\n", 1)[0].strip().split(","))
    elif source.suffix.lower() == ".parquet" and source.is_file():
        names = parquet_names(source)
    return "columns path and text" if {"path", "text"} <= {n.strip() for n in names} else ""


def read(source: Path, options: ImportOptions) -> Imported:
    """The clips of a manifest.

    Raises:
        InputError: the file cannot be read, or has no column ``path``.
    """
    parquet = source.suffix.lower() == ".parquet"
    rows = read_parquet_rows(source, COLUMNS) if parquet else read_csv_file(source)
    collector = Collector(options)
    for row in rows:
        if isinstance(row, InputError):
            collector.skip_error(row)
            continue
        if "path" not in row.table():
            row.get("path")
        _add(row, source.parent, collector)
    return collector.done(str(source))


def _add(row: Node, folder: Path, collector: Collector) -> None:
    try:
        path = in_folder(folder, row.get("path").text())
        collector.add(draft_of_row(row, path, optional_text(row, "text")))
    except InputError as error:
        collector.skip_error(error)
