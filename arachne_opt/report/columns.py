"""Tables column by column, as the page reads them, and values that are kept once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import Any


class Interned:
    """Values by number, each kept once, in the order of their first use."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._index: dict[Hashable, int] = {}

    def number(self, value: Any) -> int:  # noqa: ANN401 - any JSON value
        """The number of a value."""
        key = value if isinstance(value, str) else json.dumps(value)
        if key not in self._index:
            self._index[key] = len(self.values)
            self.values.append(value)
        return self._index[key]


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Rows as a list per column."""
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def memory_json(series: dict[int, list[tuple[int, int]]]) -> list[dict[str, Any]]:
    """Memory over time, kept once for devices that have the same.

    Args:
        series: by device, (µs, bytes from then on) at each change.
    """
    same: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for device, points in series.items():
        same.setdefault(tuple(points), []).append(device)
    return [
        {"devices": devices, "t": [t for t, _ in points], "bytes": [b for _, b in points]}
        for points, devices in same.items()
    ]
