"""Which of several formats a file is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from arachne_opt.errors import InputError


def recognised(
    source: Path, tests: Mapping[str, tuple[Callable[[Path], str], str]]
) -> tuple[str, str]:
    """Name of the first format that a source is in, and what it was recognised by.

    Args:
        source: a file or folder.
        tests: by name of the format, a test and what a user has of it.

    Raises:
        InputError: it is not there, is in no format, or is broken so that no test can tell.
    """
    if not source.exists():
        raise InputError("no such file or folder", where=str(source), hint="another path")
    broken: InputError | None = None
    for name, (test, _) in tests.items():
        try:
            reason = test(source)
        except InputError as error:
            broken = broken or error
            continue
        if reason:
            return name, reason
    if broken is not None:
        raise broken
    known = "; ".join(f"{name}: {about}" for name, (_, about) in tests.items())
    what = f"the format was not recognised; known are {known}"
    raise InputError(what, where=f"{source}:1" if source.is_file() else str(source), hint="--from")
