"""Lists of hosts in Slurm's short form: ``gpu[01-03,7],login1``."""

from __future__ import annotations

import re

from arachne_opt.errors import InputError

_HOST = re.compile(r"([\w.-]*)(?:\[([\d,-]+)\])?([\w.-]*)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MOST = 100_000


def expand(text: str) -> list[str]:
    """The hosts of a list.

    Raises:
        InputError: it is no such list.
    """
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):
        match = _HOST.fullmatch(part.strip())
        if match is None or not part.strip():
            raise InputError(f"cannot read the hosts {part.strip()!r}", hint="gpu[01-04]")
        middle = _numbers(match[2], part) if match[2] is not None else [""]
        names += [f"{match[1]}{number}{match[3]}" for number in middle]
    return names


def _numbers(text: str, part: str) -> list[str]:
    found: list[str] = []
    for piece in text.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise InputError(f"cannot read the hosts {part!r}", hint="gpu[01-04]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > _MOST:
            raise InputError(f"{piece!r} is no range of hosts", hint="gpu[01-04]")
        found += [str(n).zfill(len(match[1])) for n in range(first, last + 1)]
    return found
