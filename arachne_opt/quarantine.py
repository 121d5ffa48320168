"""Clips whose files could not be used: kept in a file beside the manifest, one JSON line each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from arachne_opt.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """One clip, the file that it needs, and what is wrong with it."""

    id: str
    path: str
    reason: str


def quarantine_path(manifest: Path) -> Path:
    """Where the quarantine of a manifest lies."""
    return manifest.with_name(manifest.name + ".quarantine.jsonl")


def read_quarantine(path: Path) -> tuple[Quarantined, ...]:
    """The clips in a quarantine file, none where there is no file.

    Raises:
        InputError: the file cannot be read.
    """
    if not path.exists():
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return tuple(Quarantined(**json.loads(line)) for line in lines if line.strip())
    except (OSError, ValueError, TypeError) as error:
        what = f"cannot read the quarantine: {error}"
        raise InputError(what, where=str(path), hint="removing the file") from error


def add_to_quarantine(path: Path, entries: Iterable[Quarantined]) -> int:
    """Adds clips that are not there yet; gives their number.

    Raises:
        InputError: the file cannot be written.
    """
    known = {entry.id for entry in read_quarantine(path)}
    new = [entry for entry in entries if entry.id not in known]
    if not new:
        return 0
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(entry)) + "\n" for entry in new)
    except OSError as error:
        raise InputError(f"cannot write the quarantine: {error}", where=str(path)) from error
    return len(new)
