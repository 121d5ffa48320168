"""Canonical JSON and digests: equal content gives equal bytes on every machine."""

from __future__ import annotations

import hashlib
import json


def canonical_json(value: object) -> str:
    """Compact JSON with sorted keys; refuses NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
