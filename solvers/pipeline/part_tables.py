"""What parts of the pipelines can train on every number of devices, and which of them go together.

samples[d] = batch · (1 + (left - fill[d]) / low) micro-batches at most, with the least fill of any
pipeline on devices d or fewer; a knapsack of the wanted number of parts then says what a plan can
train. Parts that are in no plan that trains enough are dropped, the others parted further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from arachne_opt.costs.pipeline.base import Ints
from arachne_opt.solvers.pipeline.chains import Chains
from arachne_opt.solvers.pipeline.device_prices import Part, Window
from arachne_opt.solvers.pipeline.stage_facts import Stages
from arachne_opt.solvers.pipeline.workbench import Workbench

_NONE = -(10**12)
_TINY = 1e-9
_FINEST = 1.0002
_MOST_TABLES = 6_000  # that are made before a proof is given up
_MOST_CELLS = 1_200


class _Tabled(NamedTuple):
    """A part with the samples that it can train on each number of devices."""

    chains: Chains
    batch: int
    low_s: float
    high_s: float
    samples: Ints


def none_go_together(
    bench: Workbench,
    stages: Stages,
    window: Window,
    least: int,
    parts: Sequence[Part],
    over: Callable[[], bool],
) -> bool:
    """Whether no plan of at least so many pipelines from these parts trains enough: a proof."""
    if not stages.countable or np.prod(window.devices + 1) > _MOST_CELLS:
        return False
    tables = _Tables(bench, stages, window, least)
    for exact in (False, True):
        left = tables.left(tables.first(parts, exact=exact), over)
        if left is None:
            return False
        if not left:
            return True
        parts = [p for p in parts if any(_overlap(p, t) for t in left)]
    return False


class _Tables:
    def __init__(self, bench: Workbench, stages: Stages, window: Window, least: int) -> None:
        self._most_stages = bench.space.in_stages
        self._stages = stages
        self._window = window
        self._least = least
        self._made = 0

    def first(self, parts: Sequence[Part], *, exact: bool) -> list[_Tabled]:
        """Tables of parts."""
        limits = self._window.devices.astype(np.int64)
        chains: dict[int, Chains] = {}
        tabled = []
        for part in parts:
            batch = part.chains.batch
            if batch not in chains:
                chains[batch] = Chains(
                    self._stages.split(batch, limits),
                    limits,
                    self._most_stages,
                    exact=exact,
                    across_ab=self._window.across_ab,
                )
            tabled.append(self._table(chains[batch], batch, part.low_s, part.high_s))
        return tabled

    def left(self, tabled: list[_Tabled], over: Callable[[], bool]) -> list[_Tabled] | None:
        """The finest parts that plans may be made of; None if that took too long."""
        while tabled:
            tabled = self._critical(tabled)
            if all(t.high_s / t.low_s <= _FINEST for t in tabled):
                break
            halves: list[_Tabled] = []
            for t in tabled:
                if over() or self._made > _MOST_TABLES:
                    return None
                halves += self._halves(t)
            tabled = halves
        return tabled

    def _critical(self, tabled: list[_Tabled]) -> list[_Tabled]:
        """Parts that, with the best of the others, train enough."""
        best = np.max([t.samples for t in tabled], axis=0)
        others = _sums(best, self._least - 1)
        if self._window.pipelines > self._least:
            more = _sums(np.maximum(best, 0), self._window.pipelines - self._least)
            others = _joined(others, more)
        left = others[(slice(None, None, -1),) * others.ndim]
        return [t for t in tabled if (t.samples + left).max() >= self._window.samples]

    def _halves(self, tabled: _Tabled) -> list[_Tabled]:
        if tabled.high_s / tabled.low_s <= _FINEST:
            return [tabled]
        middle = float(np.sqrt(tabled.low_s * tabled.high_s))
        low = self._table(tabled.chains, tabled.batch, tabled.low_s, middle)
        return [low, self._table(tabled.chains, tabled.batch, middle, tabled.high_s)]

    def _table(self, chains: Chains, batch: int, low_s: float, high_s: float) -> _Tabled:
        self._made += 1
        left = self._window.left_s
        fill = chains.least_fills_s(high_s, self._window.most_exchange_s, left)
        possible = fill <= left
        rounds = np.floor(1 + (left - np.where(possible, fill, left)) / low_s + _TINY)
        samples = np.where(possible, batch * rounds, _NONE).astype(np.int64)
        return _Tabled(chains, batch, low_s, high_s, samples)


def _overlap(part: Part, tabled: _Tabled) -> bool:
    apart = part.high_s <= tabled.low_s or tabled.high_s <= part.low_s
    return part.chains.batch == tabled.batch and not apart


def _sums(best: Ints, count: int) -> Ints:
    """Most samples of so many parts on each number of devices."""
    total = np.zeros_like(best)
    power = best
    while count:
        if count & 1:
            total = _joined(total, power)
        count >>= 1
        if count:
            power = _joined(power, power)
    return total


def _joined(one: Ints, other: Ints) -> Ints:
    """Most samples of two on each number of devices together."""
    found = np.full_like(one, _NONE)
    for cell in np.argwhere(other >= 0).tolist():
        target = tuple(slice(n, None) for n in cell)
        source = tuple(slice(None, size - n) for size, n in zip(one.shape, cell, strict=True))
        found[target] = np.maximum(found[target], one[source] + other[tuple(cell)])
    return found
