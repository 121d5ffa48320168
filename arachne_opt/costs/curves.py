"""Costs over a size as curves that never fall."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """Non-decreasing cost over tokens, for one number of clips."""

    tokens: tuple[int, ...]
    costs: tuple[float, ...]

    def at(self, tokens: int, reach: float) -> float | None:
        """Interpolated cost; in proportion outside the range, None beyond ``reach``."""
        first, last = self.tokens[0], self.tokens[-1]
        if tokens > last:
            return self.costs[-1] * tokens / last if tokens <= last * reach else None
        if tokens < first:
            return self.costs[0] * tokens / first if tokens * reach >= first else None
        right = bisect_right(self.tokens, tokens)
        if right == len(self.tokens):
            return self.costs[-1]
        low, high = self.tokens[right - 1], self.tokens[right]
        share = (tokens - low) / (high - low)
        return self.costs[right - 1] + share * (self.costs[right] - self.costs[right - 1])


def non_decreasing(values: Sequence[float]) -> list[float]:
    """The nearest non-decreasing sequence in least squares (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            before, size = blocks.pop()
            mean = (before * size + mean * count) / (size + count)
            count += size
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]
