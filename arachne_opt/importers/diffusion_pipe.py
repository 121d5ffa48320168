"""Datasets of diffusion-pipe: a TOML file with ``[[directory]]``, or such a folder itself.

Form as in tdrussell/diffusion-pipe (GPL-3.0; learnt from its example and its documentation): media
files with captions beside them in ``.txt`` or together in ``captions.json``; ``num_repeats``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.media import (
    Collector,
    Draft,
    Imported,
    ImportOptions,
    folder_drafts,
    in_folder,
)
from arachne_opt.importers.node import Node
from arachne_opt.importers.repeats import repeated
from arachne_opt.importers.toml_file import read_toml_file

CAPTIONS = "captions.json"


def recognise(source: Path) -> str:
    """Why a file or folder looks like such a dataset, empty where it does not."""
    if source.is_dir():
        return f"a folder with {CAPTIONS}" if (source / CAPTIONS).is_file() else ""
    if source.suffix.lower() == ".toml" and source.is_file():
        return "[[directory]] tables" if "directory" in read_toml_file(source).value else ""
    return ""


def read(source: Path, options: ImportOptions) -> Imported:
    """The clips of all directories.

    Raises:
        InputError: the file cannot be read, or a directory is not there.
    """
    collector = Collector(options)
    if source.is_dir():
        for draft in _drafts(source, collector):
            collector.add(draft)
        return collector.done(str(source))
    top = read_toml_file(source)
    for directory in directories_of(top):
        path = directory.get("path")
        folder = Path(in_folder(source.parent, path.text()))
        if not folder.is_dir():
            raise path.error(f"the directory {folder} is not there", "a directory of media files")
        repeats = directory.find("num_repeats") or top.find("num_repeats")
        repeated(list(_drafts(folder, collector)), repeats, collector)
    return collector.done(str(source))


def directories_of(top: Node) -> list[Node]:
    """The ``[[directory]]`` tables."""
    found = list(top.get("directory").items())
    if not found:
        raise top.error("no [[directory]] is given", '[[directory]] with path = "…"')
    return found


def _drafts(folder: Path, collector: Collector) -> Iterator[Draft]:
    file = folder / CAPTIONS
    if not file.is_file():
        yield from folder_drafts(folder, collector)
        return
    texts = read_json_file(file)
    unused = set(texts.table())
    for draft in folder_drafts(folder, Collector(collector.options)):
        name = Path(draft.path).name
        unused.discard(name)
        found = texts.find(name)
        if found is None:
            collector.note(f"{draft.path} has no caption in {CAPTIONS}")
            yield Draft(where=texts.where, path=draft.path)
            continue
        try:
            caption = _first_text(found)
        except InputError as error:
            collector.skip_error(error)
            continue
        yield Draft(where=found.where, path=draft.path, caption=caption)
    for name in sorted(unused):
        collector.skip(texts.child(name).where, f"the file {folder / name} is not there")


def _first_text(found: Node) -> str:
    """A caption, the first of several: any of them is as long for the plan."""
    if isinstance(found.value, list):
        texts = [item.text() for item in found.items()]
        return max(texts, key=len, default="")
    return found.text()
