"""Reads the JSON files of the public data, with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from arachne_opt.errors import InputError


def read_public_json(path: str | Path, *keys: str) -> dict[str, Any]:
    """The object in a file.

    Args:
        path: the file.
        keys: keys that must be there.

    Raises:
        InputError: no such file, no JSON, or a key is missing.
    """
    file = Path(path)
    try:
        value = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read the file: {error}", where=str(file)) from error
    if not isinstance(value, dict):
        raise InputError("the file holds no JSON object", where=str(file))
    if lacking := [key for key in keys if key not in value]:
        raise InputError(f"the key {lacking[0]!r} is missing", where=str(file))
    return value
