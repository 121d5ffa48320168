"""Manifests of clips: CSV or JSON lines, one clip a row.

Columns: id, num_frames, height, width, and caption or text_tokens; path, fps, latents and
embeddings where known. ``latents`` names a safetensors or Parquet file of what the VAE made of the
clip; so does a path that ends in ``.safetensors`` or ``.parquet``. ``embeddings`` names one of the
clip's text.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean
from arachne_opt.workload import Clip, Shape

REQUIRED = ("id", "num_frames", "height", "width")
COLUMNS = (*REQUIRED, "path", "caption", "text_tokens", "fps", "latents", "embeddings")
# Only there where they are used.
_RARE = ("latents", "embeddings")

_LATENTS_SUFFIXES = (".safetensors", ".parquet")

_SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_SHOWN_ROWS = 5
_CHARACTERS_PER_TOKEN = 4

_log = logging.getLogger(__name__)

Row = Mapping[str, object]


class _BadRow(Exception):
    """What is wrong with one row."""


def read_manifest(path: str | Path) -> tuple[Clip, ...]:
    """The clips of a manifest, in its order.

    Raises:
        InputError: a column is missing, or rows cannot be used; the first few are listed.
    """
    file = Path(path)
    text = _text(file)
    if not text.strip():
        raise InputError("the manifest is empty", where=str(file))
    rows: Callable[[str, str], Iterator[tuple[int, Row | _BadRow]]]
    rows = _csv_rows if _kind(file) == "csv" else _jsonl_rows
    numbered = list(rows(text, str(file)))
    if not numbered:
        raise InputError("the manifest has a header and no clips", where=str(file))
    return _clips(numbered, str(file))


def write_manifest(clips: Iterable[Clip], path: str | Path) -> None:
    """Writes clips as CSV or JSON lines, by the suffix of the path."""
    file, clips = Path(path), tuple(clips)
    rows = [
        {
            "id": clip.id,
            "path": clip.path,
            "caption": clip.caption,
            "text_tokens": clip.text_tokens,
            "num_frames": clip.shape.frames,
            "height": clip.shape.height,
            "width": clip.shape.width,
            "fps": clip.fps,
            "latents": clip.latents,
            "embeddings": clip.embeddings,
        }
        for clip in clips
    ]
    out = io.StringIO()
    if _kind(file) == "jsonl":
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        every = rows[0] if rows else COLUMNS
        fields = [key for key in every if key not in _RARE or any(row[key] for row in rows)]
        writer = csv.DictWriter(out, fields, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    try:
        file.write_text(out.getvalue(), encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"cannot write the manifest: {error}", where=str(file)) from error


def estimated_text_tokens(caption: str) -> int:
    """Tokens of a caption: one per four ASCII characters, one per other character, rounded up."""
    others = sum(not character.isascii() for character in caption)
    return others + math.ceil((len(caption) - others) / _CHARACTERS_PER_TOKEN)


def _kind(file: Path) -> str:
    kind = _SUFFIXES.get(file.suffix.lower())
    if kind is None:
        what = f"a manifest ends in {', '.join(_SUFFIXES)}, not in {file.suffix!r}"
        raise InputError(what, where=str(file))
    return kind


def _text(file: Path) -> str:
    _kind(file)
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the manifest: {error}", where=str(file)) from error
    except UnicodeDecodeError as error:
        what = f"the manifest is not UTF-8: {error.reason} at byte {error.start}"
        raise InputError(what, where=str(file)) from error


def _csv_rows(text: str, where: str) -> Iterator[tuple[int, Row | _BadRow]]:
    """Line number and fields of each row; a row of another length is bad."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader)]
        if len(set(header)) != len(header):
            double = next(name for name in header if header.count(name) > 1)
            raise InputError(f"the column {double!r} is there twice", where=f"{where}: line 1")
        _check_columns(header, where)
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                yield line, _csv_row(header, cells)
            line = reader.line_num + 1
    except csv.Error as error:
        place = f"{where}: line {reader.line_num}"
        raise InputError(f"no valid CSV: {error}", where=place) from error


def _csv_row(header: list[str], cells: list[str]) -> Row | _BadRow:
    if len(cells) != len(header):
        return _BadRow(f"{len(cells)} fields, the header has {len(header)}")
    return dict(zip(header, cells, strict=True))


def _jsonl_rows(text: str, where: str) -> Iterator[tuple[int, Row | _BadRow]]:
    seen: dict[str, None] = {}
    rows: list[tuple[int, Row | _BadRow]] = []
    # Not splitlines(): JSON strings may hold other line separators than \n.
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except ValueError as error:
            rows.append((line, _BadRow(f"no valid JSON: {error}")))
            continue
        if isinstance(row, dict):
            seen |= dict.fromkeys(row)
        rows.append((line, row if isinstance(row, dict) else _BadRow("not a JSON object")))
    if seen:
        _check_columns(seen, where)
    return iter(rows)


def _check_columns(found: Iterable[str], where: str) -> None:
    names = list(found)
    lacking = [name for name in REQUIRED if name not in names]
    if "caption" not in names and "text_tokens" not in names:
        lacking.append("text_tokens")
    if lacking:
        name = lacking[0]
        alias = " (or 'caption')" if name == "text_tokens" else ""
        unused = [other for other in names if other not in COLUMNS]
        near = [n for n in unused if did_you_mean(n, [name])]
        guess = f" (did you mean {near[0]!r} by it?)" if near else ""
        what = f"the column {name!r}{alias} is missing{guess}; found: {', '.join(names)}"
        raise InputError(what, where=where, hint=f"the columns {', '.join(COLUMNS)}")
    if ignored := [name for name in names if name not in COLUMNS]:
        _log.info("%s: columns ignored: %s", where, ", ".join(ignored))


def _clips(numbered: list[tuple[int, Row | _BadRow]], where: str) -> tuple[Clip, ...]:
    clips: list[Clip] = []
    bad: list[str] = []
    line_of: dict[str, int] = {}
    for line, row in numbered:
        try:
            if isinstance(row, _BadRow):
                raise row
            clip = _clip(row)
            if clip.id in line_of:
                raise _BadRow(f"id {clip.id!r} is already on line {line_of[clip.id]}")
        except _BadRow as error:
            bad.append(f"line {line}: {error}")
            continue
        line_of[clip.id] = line
        clips.append(clip)
    if bad:
        more = f"; and {len(bad) - _SHOWN_ROWS} more" if len(bad) > _SHOWN_ROWS else ""
        rows = "row" if len(bad) == 1 else "rows"
        what = f"{len(bad)} bad {rows}: {'; '.join(bad[:_SHOWN_ROWS])}{more}"
        raise InputError(what, where=where)
    if any(not row.get("text_tokens") for _, row in numbered if not isinstance(row, _BadRow)):
        _log.info("%s: text tokens estimated from the length of the captions", where)
    return tuple(clips)


def _clip(row: Row) -> Clip:
    identity = row.get("id")
    if isinstance(identity, bool) or not isinstance(identity, str | int) or identity == "":
        raise _BadRow("the id is empty" if identity in ("", None) else f"id is {identity!r}")
    caption = row.get("caption") or ""
    if not isinstance(caption, str):
        raise _BadRow(f"caption is {caption!r}, not a text")
    path, latents = str(row.get("path") or ""), str(row.get("latents") or "")
    if path.endswith(_LATENTS_SUFFIXES) and not latents:
        path, latents = "", path
    return Clip(
        id=str(identity).strip(),
        shape=Shape(
            frames=_whole(row, "num_frames", 1),
            height=_whole(row, "height", 1),
            width=_whole(row, "width", 1),
        ),
        path=path,
        latents=latents,
        embeddings=str(row.get("embeddings") or ""),
        caption=caption,
        text_tokens=_text_tokens(row, caption),
        fps=_number(row, "fps") if row.get("fps") not in ("", None) else 0.0,
    )


def _text_tokens(row: Row, caption: str) -> int:
    if row.get("text_tokens") in ("", None):
        return estimated_text_tokens(caption)
    return _whole(row, "text_tokens", 0)


def _whole(row: Row, key: str, minimum: int) -> int:
    number = _number(row, key)
    if number != int(number):
        raise _BadRow(f"{key} is {row[key]!r}, not a whole number")
    if number < minimum:
        raise _BadRow(f"{key} is {int(number)}, must be at least {minimum}")
    return int(number)


def _number(row: Row, key: str) -> float:
    value = row.get(key)
    if value is None or value == "":
        raise _BadRow(f"{key} is empty")
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        raise _BadRow(f"{key} is {value!r}, not a number") from None
    if not math.isfinite(number):
        raise _BadRow(f"{key} is {value!r}, not a finite number")
    if number < 0:
        raise _BadRow(f"{key} is {value}, must not be negative")
    return number
