"""How two makespans compare over many instances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Makespans this close count as equal: published ones are rounded.
TIE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Ours over theirs: below 1 ours is shorter.

    Args:
        mean: geometric mean.
        ties: within 0.1 %.
    """

    count: int
    mean: float
    best: float
    worst: float
    wins: int
    ties: int
    losses: int


def ratios_of(pairs: Sequence[tuple[int, int]]) -> Ratios | None:
    """The ratios of (ours, theirs), None where there are none."""
    if not pairs:
        return None
    ratios = [ours / theirs for ours, theirs in pairs]
    wins = sum(ratio < 1 - TIE for ratio in ratios)
    losses = sum(ratio > 1 + TIE for ratio in ratios)
    return Ratios(
        count=len(ratios),
        mean=math.exp(sum(map(math.log, ratios)) / len(ratios)),
        best=min(ratios),
        worst=max(ratios),
        wins=wins,
        ties=len(ratios) - wins - losses,
        losses=losses,
    )
