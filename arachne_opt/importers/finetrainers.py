"""Datasets of finetrainers: a JSON configuration, or a folder in one of its conventions.

The conventions are those of a-r-r-o-w/finetrainers (Apache-2.0), docs/dataset: ``metadata.csv``,
``.jsonl`` or ``.json``; a file of captions beside ``videos.txt``; or ``a.mp4`` beside ``a.txt``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers.json_file import read_json_file, read_json_lines
from arachne_opt.importers.media import (
    Collector,
    Draft,
    Imported,
    ImportOptions,
    draft_of_row,
    folder_drafts,
    in_folder,
    is_media,
    optional_text,
)
from arachne_opt.importers.node import Node, read_text
from arachne_opt.importers.table_file import read_csv_file
from arachne_opt.manifest import estimated_text_tokens

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.json")
CAPTIONS = ("captions.txt", "caption.txt", "prompts.txt", "prompt.txt")
LISTS = ("videos.txt", "video.txt", "images.txt", "image.txt")
_PATH_KEYS = ("file_name", "video_path", "image_path", "path")
_CAPTION_KEYS = ("caption", "text", "prompt")


def recognise(source: Path) -> str:
    """Why a file or folder looks like such a dataset, empty where it does not."""
    if source.is_dir():
        names = {entry.name for entry in source.iterdir()}
        for name in METADATA:
            if name in names:
                return f"a folder with {name}"
        if names.intersection(LISTS):
            return "a folder with a list of files and one of captions"
        return "a folder of media files" if any(map(is_media, names)) else ""
    if source.name in METADATA:
        return f"the name {source.name}"
    if source.suffix.lower() == ".json" and source.is_file():
        value = read_json_file(source).value
        datasets = value.get("datasets") if isinstance(value, dict) else None
        tables = [d for d in datasets if isinstance(d, dict)] if isinstance(datasets, list) else []
        if any("data_root" in table for table in tables):
            return "datasets with a data_root"
    return ""


def read(source: Path, options: ImportOptions) -> Imported:
    """The clips of a configuration, of a folder, or of a metadata file.

    Raises:
        InputError: nothing there is in one of the conventions.
    """
    collector = Collector(options)
    if source.is_dir():
        _folder(source, collector, str(source))
    elif source.name in METADATA or source.suffix.lower() in (".csv", ".jsonl"):
        _metadata(source, collector)
    else:
        for dataset in datasets_of(source):
            root = dataset.get("data_root")
            folder = Path(in_folder(source.parent, root.text()))
            if not folder.is_dir():
                what = f"the folder {folder} is not there"
                raise root.error(what, "a folder here; data sets of the hub are downloaded first")
            before = len(collector.clips)
            _folder(folder, collector, root.where)
            token = dataset.find("id_token")
            if token is not None:
                _prepend(collector, before, token.text())
    return collector.done(str(source))


def datasets_of(source: Path) -> list[Node]:
    """The entries of a configuration."""
    top = read_json_file(source)
    found = list(top.get("datasets").items())
    if not found:
        raise top.get("datasets").error("no data set is listed", "an entry with a data_root")
    return found


def _prepend(collector: Collector, first: int, token: str) -> None:
    """Puts the token before the captions of a data set, as the trainer does."""
    for number in range(first, len(collector.clips)):
        clip = collector.clips[number]
        caption = f"{token} {clip.caption}".rstrip()
        tokens = estimated_text_tokens(caption)
        collector.clips[number] = replace(clip, caption=caption, text_tokens=tokens)


def _folder(folder: Path, collector: Collector, where: str) -> None:
    for name in METADATA:
        if (folder / name).is_file():
            _metadata(folder / name, collector)
            return
    lists = [folder / name for name in LISTS if (folder / name).is_file()]
    captions = [folder / name for name in CAPTIONS if (folder / name).is_file()]
    if lists and captions:
        _two_lists(lists[0], captions[0], collector)
        return
    drafts = list(folder_drafts(folder, collector))
    if not drafts and not collector.skipped:
        hint = (
            f"{', '.join(METADATA)}, two lists such as prompts.txt and videos.txt, or media files"
        )
        raise InputError(f"{folder} holds no data set", where=where, hint=hint)
    for draft in drafts:
        collector.add(draft)


def _metadata(file: Path, collector: Collector) -> None:
    rows: list[Node | InputError]
    if file.suffix.lower() == ".csv":
        rows = read_csv_file(file)
    elif file.suffix.lower() == ".jsonl":
        rows = read_json_lines(file)
    else:
        top = read_json_file(file)
        rows = list((top.get("data") if isinstance(top.value, dict) else top).items())
    for row in rows:
        if isinstance(row, InputError):
            collector.skip_error(row)
            continue
        try:
            path = in_folder(file.parent, row.get(*_PATH_KEYS).text())
            collector.add(draft_of_row(row, path, optional_text(row, *_CAPTION_KEYS)))
        except InputError as error:
            collector.skip_error(error)


def _two_lists(files: Path, captions: Path, collector: Collector) -> None:
    paths, texts = (read_text(f).rstrip("\n").split("\n") for f in (files, captions))
    if len(paths) != len(texts):
        short = files if len(paths) < len(texts) else captions
        what = f"{len(paths)} files in {files.name}, but {len(texts)} captions in {captions.name}"
        place = f"{short}:{min(len(paths), len(texts))}"
        raise InputError(what, where=place, hint="one line per clip in both, in the same order")
    for number, (path, text) in enumerate(zip(paths, texts, strict=True), 1):
        where = f"{files}:{number}"
        if not path.strip():
            collector.skip(where, "the line names no file")
            continue
        name = in_folder(files.parent, path.strip())
        collector.add(Draft(where=where, path=name, caption=text.strip()))
