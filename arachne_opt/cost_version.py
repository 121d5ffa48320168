"""Names of cost models: ``KIND/WHAT:DIGEST``, of which the part before the colon is the lineage.

Versions of one lineage price the same things, such as one model on the same device types. Whoever
measures again makes a new version, and plans of the older ones become stale. A version that names
no lineage replaces no other.
"""

from __future__ import annotations

from collections.abc import Iterable

_DIGITS = 16


def cost_version(kind: str, what: Iterable[str], digest: str) -> str:
    """The version of a cost model; ``what`` names all that its prices are for."""
    parts = (part.replace(":", "-").replace("/", "-") for part in what)
    return f"{kind}/{'/'.join(parts)}:{digest[:_DIGITS]}"


def lineage(version: str) -> str | None:
    """What all versions of a cost model have in common, None where the version names nothing."""
    head, colon, _ = version.rpartition(":")
    return head if colon and "/" in head else None
