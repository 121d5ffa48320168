"""Datasets of musubi-tuner: TOML with ``[general]`` and ``[[datasets]]``, or its JSON lines.

Form as documented by kohya-ss/musubi-tuner (Apache-2.0), docs/dataset_config.md. A video gives one
sample or more of each of ``target_frames``; every sample becomes a clip of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers.json_file import read_json_lines
from arachne_opt.importers.media import (
    Collector,
    Draft,
    Imported,
    ImportOptions,
    draft_of_row,
    file_frames,
    folder_drafts,
    frames_at,
    in_folder,
    is_image,
    optional_text,
)
from arachne_opt.importers.musubi_samples import samples
from arachne_opt.importers.node import Node
from arachne_opt.importers.repeats import repeated
from arachne_opt.importers.toml_file import read_toml_file

SOURCES = ("video_directory", "video_jsonl_file", "image_directory", "image_jsonl_file")
_PATH_KEYS = ("video_path", "image_path", "image_path_0")


def recognise(source: Path) -> str:
    """Why a file looks like such a dataset, empty where it does not."""
    if source.suffix.lower() == ".toml" and source.is_file():
        datasets = read_toml_file(source).value.get("datasets")
        tables = [d for d in datasets if isinstance(d, dict)] if isinstance(datasets, list) else []
        return "[[datasets]] tables" if any(set(SOURCES) & set(d) for d in tables) else ""
    if source.suffix.lower() == ".jsonl" and source.is_file():
        first = next((r for r in read_json_lines(source) if isinstance(r, Node)), None)
        if first and set(_PATH_KEYS) & set(first.names()) and "file_name" not in first.names():
            return "lines with video_path or image_path"
    return ""


def read(source: Path, options: ImportOptions) -> Imported:
    """The clips of all datasets.

    Raises:
        InputError: the file cannot be read, or a dataset is not there.
    """
    collector = Collector(options)
    if source.suffix.lower() == ".jsonl":
        for draft in _lines(source, collector):
            collector.add(draft)
        return collector.done(str(source))
    top = read_toml_file(source)
    for dataset in datasets_of(top):
        wanted = list(_drafts(dataset, top, source.parent, collector))
        repeats = setting(dataset, top, "num_repeats")
        if any(key.startswith("image") for key in dataset.names()):
            repeated(wanted, repeats, collector)
        else:
            cut = [part for draft in wanted for part in _cut(draft, dataset, collector)]
            repeated(cut, repeats, collector)
    return collector.done(str(source))


def datasets_of(top: Node) -> list[Node]:
    """The ``[[datasets]]`` tables."""
    found = list(top.get("datasets").items())
    if not found:
        raise top.error("no [[datasets]] is given", '[[datasets]] with video_directory = "…"')
    return found


def setting(dataset: Node, top: Node, key: str) -> Node | None:
    """A value of a dataset, else that of ``[general]``."""
    general = top.find("general")
    return dataset.find(key) or (general.find(key) if general else None)


def _drafts(dataset: Node, top: Node, folder: Path, collector: Collector) -> Iterator[Draft]:
    source = dataset.get(*SOURCES)
    place = Path(in_folder(folder, source.text()))
    if source.key.endswith("_file"):
        if not place.is_file():
            raise source.error(f"the file {place} is not there", "a file of JSON lines")
        yield from _lines(place, collector)
        return
    if not place.is_dir():
        raise source.error(f"the directory {place} is not there", "a directory of media files")
    suffix = setting(dataset, top, "caption_extension")
    text = suffix.text() if suffix else ".txt"
    yield from folder_drafts(place, collector, caption_suffix=text)


def _lines(file: Path, collector: Collector) -> Iterator[Draft]:
    for row in read_json_lines(file):
        if isinstance(row, InputError):
            collector.skip_error(row)
            continue
        try:
            path = row.get(*_PATH_KEYS).text()
            # The working directory comes first, then the folder of the file.
            path = path if Path(path).exists() else in_folder(file.parent, path)
            if Path(path).is_dir():
                raise row.error(f"{path} is a folder of images, which is not read as a video")
            yield draft_of_row(row, path, optional_text(row, "caption"))
        except InputError as error:
            collector.skip_error(error)


def _cut(draft: Draft, dataset: Node, collector: Collector) -> list[Draft]:
    """The samples of a video, each as a draft; none where it is skipped."""
    if is_image(draft.path):
        collector.skip(draft.where, "an image in a data set of videos")
        return []
    whole = collector.completed(draft)
    if whole is None or whole.frames is None:
        return []
    source_fps, fps = dataset.find("source_fps"), collector.options.fps
    rate = source_fps.number() if source_fps else 0.0
    if source_fps is not None and fps is None:
        what = "source_fps resamples to the model's rate, which this file does not say"
        raise source_fps.error(what, "--fps 16 for Wan 2.1, --fps 24 for HunyuanVideo")
    resampled = bool(rate and fps and rate > fps)
    frames = frames_at(whole.frames, rate, fps) if resampled and fps else whole.frames
    lengths = samples(frames, dataset)
    if not lengths:
        shortest = min(n.whole(1) for n in dataset.get("target_frames").items())
        collector.skip(draft.where, f"{frames} frames, the shortest target has {shortest}")
    if resampled and fps:
        collector.note(f"train with --fps {fps:g}: frames count at the {rate:g} of source_fps")
        lengths = [min(whole.frames, file_frames(n, rate, fps)) for n in lengths]
    if len(lengths) > 1 or dataset.find("frame_extraction"):
        collector.note("every sample of a video is a clip that begins at the start of its file")
    return [replace(whole, frames=n, fps=rate or whole.fps) for n in lengths]
