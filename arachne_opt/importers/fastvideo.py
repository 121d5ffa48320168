"""Datasets of FastVideo: preprocessed Parquet files, or ``videos2caption.json`` before that.

Columns as in hao-ai-lab/FastVideo (Apache-2.0). Its ``num_frames`` counts latent frames, and width
and height have been written in either order, so that sizes come from the shape of the latents
where there is one: [channels, frames, height, width].
"""

from __future__ import annotations

from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.media import (
    Collector,
    Draft,
    Imported,
    ImportOptions,
    draft_of_row,
    optional_text,
)
from arachne_opt.importers.node import Node
from arachne_opt.importers.table_file import parquet_names, read_parquet_rows
from arachne_opt.workload import Shape

COLUMNS = (
    "id",
    "file_name",
    "caption",
    "media_type",
    "vae_latent_shape",
    "num_frames",
    "height",
    "width",
    "fps",
)
# Frames and pixels per latent of the VAEs of Wan, HunyuanVideo and CogVideoX.
TEMPORAL, SPATIAL = 4, 8


def recognise(source: Path) -> str:
    """Why a file or folder looks like such a dataset, empty where it does not."""
    files = parquet_files(source)
    if files and {"vae_latent_shape", "media_type"} & set(parquet_names(files[0])):
        return "Parquet with latents"
    if source.suffix.lower() == ".json" and source.is_file():
        value = read_json_file(source).value
        first = value[0] if isinstance(value, list) and value else None
        return "entries with path and cap" if isinstance(first, dict) and "cap" in first else ""
    return ""


def parquet_files(source: Path) -> list[Path]:
    """A Parquet file, or those in a folder, however deep."""
    if source.is_dir():
        return sorted(source.rglob("*.parquet"))
    return [source] if source.suffix.lower() == ".parquet" and source.is_file() else []


def read(source: Path, options: ImportOptions) -> Imported:
    """The clips of a Parquet file, of all in a folder, or of ``videos2caption.json``.

    Raises:
        InputError: nothing there can be read.
    """
    collector = Collector(options)
    if source.suffix.lower() == ".json":
        for entry in read_json_file(source).items():
            _captioned(entry, source.parent, collector)
        return collector.done(str(source))
    files = parquet_files(source)
    if not files:
        raise InputError("no Parquet file is there", where=str(source), hint="another folder")
    cached = 0
    for file in files:
        for row in read_parquet_rows(file, COLUMNS):
            if isinstance(row, InputError):
                collector.skip_error(row)
            else:
                cached += _preprocessed(row, collector)
    if cached:
        text = f"the latents of {cached} clips lie inside the Parquet files; plans encode them anew"
        collector.note(text)
    return collector.done(str(source))


def latent_shape(row: Node) -> Shape | None:
    """Pixels and frames that the latents of a row stand for; None where it has none.

    Raises:
        InputError: the shape is none of three or four numbers.
    """
    found = row.find("vae_latent_shape")
    if found is None or found.value == []:
        return None
    numbers = [item.whole(1) for item in found.items()]
    if len(numbers) not in (3, 4):
        raise found.error(f"{numbers} is not [channels, frames, height, width]")
    frames, height, width = [1, *numbers[1:]] if len(numbers) == 3 else numbers[1:]
    return Shape(frames=(frames - 1) * TEMPORAL + 1, height=height * SPATIAL, width=width * SPATIAL)


def _preprocessed(row: Node, collector: Collector) -> bool:
    """Adds a row; whether its latents are there."""
    try:
        kind = optional_text(row, "media_type")
        if kind not in ("", "video", "image"):
            raise row.error(f"media_type {kind!r} is neither video nor image")
        shape = latent_shape(row)
        name = optional_text(row, "file_name") or row.get("id").text()
        if shape is None:
            collector.add(draft_of_row(row, name, optional_text(row, "caption")))
            return False
        fps = row.find("fps")
        draft = Draft(
            where=row.where,
            path="",
            caption=optional_text(row, "caption"),
            identity=optional_text(row, "id") or name,
            frames=shape.frames,
            height=shape.height,
            width=shape.width,
            fps=fps.number() if fps else None,
        )
        collector.add_whole(draft)
    except InputError as error:
        collector.skip_error(error)
        return False
    return True


def _captioned(entry: Node, folder: Path, collector: Collector) -> None:
    """Adds an entry of ``videos2caption.json``."""
    try:
        name = entry.get("path").text()
        path = folder / name
        beside = folder / "videos" / name
        path = beside if beside.is_file() and not path.is_file() else path
        cap = entry.get("cap")
        caption = cap.child(0).text() if isinstance(cap.value, list) and cap.value else cap.text()
        size = entry.find("resolution")
        height, width, frames, fps = (
            size.find("height") if size else None,
            size.find("width") if size else None,
            entry.find("num_frames"),
            entry.find("fps"),
        )
        collector.add(
            Draft(
                where=entry.where,
                path=str(path),
                caption=caption,
                frames=frames.whole(1) if frames else None,
                height=height.whole(1) if height else None,
                width=width.whole(1) if width else None,
                fps=fps.number() if fps else None,
            )
        )
    except InputError as error:
        collector.skip_error(error)
