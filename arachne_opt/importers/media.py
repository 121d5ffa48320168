"""What the importers of manifests have in common: rows become clips, or are skipped and counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from arachne_opt.errors import InputError
from arachne_opt.importers.node import Node
from arachne_opt.manifest import estimated_text_tokens
from arachne_opt.workload import Clip, Shape

VIDEO_SUFFIXES = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".m4v", ".gif")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")

_SHOWN_FILES = 5


class MediaFacts(Protocol):
    """What a media file holds; ``fps`` is 0 where it is not known."""

    @property
    def frames(self) -> int: ...  # noqa: D102
    @property
    def height(self) -> int: ...  # noqa: D102
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def fps(self) -> float: ...  # noqa: D102


# Reads a file, named by its path and by where it is mentioned; raises InputError for a bad one.
Probe = Callable[[str, str], MediaFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How to import.

    Args:
        probe: reads files for sizes that a manifest leaves out; None where that is not wanted.
        fps: frames per second that the trainer resamples to.
    """

    probe: Probe | None = None
    fps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that is no clip."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Clips of a manifest, with what was skipped and what else to know."""

    clips: tuple[Clip, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A clip as far as its manifest describes it; None is left to the file itself."""

    where: str
    path: str
    caption: str = ""
    identity: str = ""
    frames: int | None = None
    height: int | None = None
    width: int | None = None
    fps: float | None = None


@dataclass
class Collector:
    """Makes clips with distinct ids out of drafts and keeps account of the rest."""

    options: ImportOptions
    clips: list[Clip] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)
    _facts: dict[str, MediaFacts | InputError] = field(default_factory=dict)

    def skip(self, where: str, reason: str) -> None:
        """Counts a row that is no clip."""
        self.skipped.append(Skipped(where=where, reason=reason))

    def skip_error(self, error: InputError) -> None:
        """The same for a row that an error describes."""
        self.skip(error.where or "", error.what)

    def note(self, text: str) -> None:
        """Keeps a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def add(self, draft: Draft) -> Clip | None:
        """Takes a draft as a clip, or skips it."""
        completed = self.completed(draft)
        return self.add_whole(completed) if completed else None

    def completed(self, draft: Draft) -> Draft | None:
        """A draft with its sizes, read from the file where need be; None where it is skipped."""
        frames = 1 if is_image(draft.path) else draft.frames
        if None not in (frames, draft.height, draft.width):
            return replace(draft, frames=frames)
        lacking = [n for n in ("frames", "height", "width") if getattr(draft, n) is None]
        if self.options.probe is None:
            self.skip(draft.where, f"no {', '.join(lacking)}, and its file is not to be read")
            return None
        try:
            facts = self._probed(draft)
        except InputError as error:
            self.skip(draft.where, error.what)
            return None
        return replace(
            draft,
            frames=frames or facts.frames,
            height=draft.height or facts.height,
            width=draft.width or facts.width,
            fps=facts.fps if draft.fps is None else draft.fps,
        )

    def add_whole(self, draft: Draft) -> Clip:
        """Takes a draft that has its sizes."""
        assert draft.frames is not None  # completed() has seen to it
        assert draft.height is not None
        assert draft.width is not None
        clip = Clip(
            id=self._identity(draft),
            shape=Shape(frames=draft.frames, height=draft.height, width=draft.width),
            path=draft.path,
            caption=draft.caption,
            text_tokens=estimated_text_tokens(draft.caption),
            fps=draft.fps or 0.0,
        )
        self.clips.append(clip)
        return clip

    def done(self, where: str) -> Imported:
        """All that was collected.

        Raises:
            InputError: there is nothing at all.
        """
        if not self.clips and not self.skipped:
            raise InputError("there is not a single clip", where=where, hint="another source")
        return Imported(
            clips=tuple(self.clips), skipped=tuple(self.skipped), notes=tuple(self.notes)
        )

    def _probed(self, draft: Draft) -> MediaFacts:
        """What a file holds, read once."""
        assert self.options.probe is not None  # asked by the caller
        found = self._facts.get(draft.path)
        if found is None:
            try:
                if not Path(draft.path).is_file():
                    raise InputError(f"the file {draft.path} is not there")
                found = self.options.probe(draft.path, draft.where)
            except InputError as error:
                found = error
            self._facts[draft.path] = found
        if isinstance(found, InputError):
            raise found
        return found

    def _identity(self, draft: Draft) -> str:
        """The id that a row gives, else the name of its file; a number makes it unique."""
        base = draft.identity or Path(draft.path).stem or "clip"
        count = self._ids[base] = self._ids.get(base, 0) + 1
        name = base if count == 1 else f"{base}-{count}"
        while count > 1 and name in self._ids:
            count += 1
            name = f"{base}-{count}"
        self._ids.setdefault(name, 1)
        return name


def is_image(path: str) -> bool:
    """Whether a path is that of an image."""
    return path.lower().endswith(IMAGE_SUFFIXES)


def is_media(path: str) -> bool:
    """Whether a path is that of a video or an image."""
    return path.lower().endswith((*VIDEO_SUFFIXES, *IMAGE_SUFFIXES))


def draft_of_row(row: Node, path: str, caption: str) -> Draft:
    """A draft from a row with the usual columns for sizes.

    Raises:
        InputError: a value is no such number.
    """
    frames = row.find("num_frames", "frames")
    height, width = row.find("height"), row.find("width")
    identity = row.find("id")
    return Draft(
        where=row.where,
        path=path,
        caption=caption,
        identity=str(identity.value).strip() if identity else "",
        frames=None if frames is None else frames.whole(1),
        height=None if height is None else height.whole(1),
        width=None if width is None else width.whole(1),
        fps=_rate(row),
    )


def optional_text(row: Node, *keys: str) -> str:
    """The text under the first of some keys that is there, else nothing."""
    found = row.find(*keys)
    return found.text() if found else ""


def in_folder(folder: Path, name: str) -> str:
    """A path as it is meant from a folder."""
    return name if Path(name).is_absolute() else str(folder / name)


def folder_drafts(
    folder: Path, collector: Collector, *, caption_suffix: str = ".txt", where: str | None = None
) -> Iterator[Draft]:
    """The media files of a folder with the captions beside them; other files are named in a note.

    Args:
        folder: it is not searched deeper.
        collector: gets the notes.
        caption_suffix: of the file with a caption.
        where: what mentions the folder; by default each file stands for itself.
    """
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    media = [f for f in files if is_media(f.name)]
    captions = {_beside(f, caption_suffix) for f in media}
    without = [f for f in media if not _beside(f, caption_suffix).is_file()]
    known = (caption_suffix, ".json", ".jsonl", ".csv", ".toml", ".npz", ".safetensors")
    others = [f.name for f in files if f not in media and f.suffix not in known]
    lonely = [f.name for f in files if f.suffix == caption_suffix and f not in captions]
    for names, what in ((others, "are no videos or images"), (lonely, "belong to no clip")):
        if names:
            collector.note(f"{len(names)} files in {folder} {what}: {_few(names)}")
    if without:
        names = [f.name for f in without]
        collector.note(f"{len(names)} clips in {folder} have no caption: {_few(names)}")
    for file in media:
        beside = _beside(file, caption_suffix)
        try:
            text = beside.read_text(encoding="utf-8-sig").strip() if beside.is_file() else ""
        except (OSError, UnicodeDecodeError):
            collector.skip(f"{beside}:1", "the caption cannot be read as UTF-8")
            continue
        yield Draft(where=where or f"{file}:1", path=str(file), caption=text)


def _beside(file: Path, suffix: str) -> Path:
    """The file of another suffix beside a file."""
    return file.parent / f"{file.stem}{suffix}"


def file_frames(frames: int, fps: float, train_fps: float) -> int:
    """Frames that a file must have to give ``frames`` at a lower rate (see ``frame_rate``)."""
    if train_fps >= fps:
        return frames
    return math.ceil((frames - 1) * fps / train_fps + 0.5)


def frames_at(frames: int, fps: float, train_fps: float) -> int:
    """Frames that a file gives at a lower rate."""
    if train_fps >= fps:
        return frames
    return max(1, math.floor((frames - 0.5) * train_fps / fps - 1e-9) + 1)


def _rate(row: Node) -> float | None:
    """Frames per second; whatever is no rate is unknown, as writers put inf or nan for images."""
    found = row.find("fps", "frame_rate")
    if found is None:
        return None
    try:
        return found.number() or None
    except InputError:
        text = str(found.value).strip().lower().lstrip("+-")
        if text in ("nan", "inf", "infinity", "none", "null"):
            return None
        raise


def _few(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN_FILES])
    return shown if len(names) <= _SHOWN_FILES else f"{shown}, …"
