"""Which problems are cut into pods."""

from __future__ import annotations

from arachne_opt.solvers.cascade.digest import Digest

_LARGE_NODES, _LARGE_CASCADES = 8, 14


def is_large(digest: Digest) -> bool:
    """Whether a problem is better cut into pods."""
    return len(digest.nodes) >= _LARGE_NODES and len(digest.cascades) >= _LARGE_CASCADES
