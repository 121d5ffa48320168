"""Lower bounds of the time of an iteration that hold for every plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arachne_opt.costs.pipeline.base import Floats
from arachne_opt.solvers.pipeline.options import Space

_ROUNDS = 60


class WorkBound:
    """Each device at its best rate, without sends, exchange, fill or memory.

    In time T a type with N devices gives N · T device seconds; row r of a sample takes at least
    e[t, r] of them on type t. For any prices w >= 0 of a device second,
    T · Σ_t w_t N_t >= samples · Σ_r min_t w_t e[t, r]; the prices are chosen to make T large.
    """

    def __init__(self, space: Space) -> None:
        self._effort = _least_effort(space)
        self._devices = np.array([space.devices(p) for p in range(len(space.places))], dtype=float)
        self.prices = self._best_prices()

    def seconds(self, samples: int, places: Sequence[int] | None = None) -> float:
        """No plan trains so many samples in less time (on the devices of some places)."""
        if places is None:
            return samples * self._per_sample_s(self.prices)
        chosen = list(places)
        priced = (self.prices[:, None] * self._effort)[chosen].min(axis=0).sum()
        return samples * float(priced / (self.prices[chosen] @ self._devices[chosen]))

    def _per_sample_s(self, prices: Floats) -> float:
        priced = prices[:, None] * self._effort
        return float(priced.min(axis=0).sum() / (prices @ self._devices))

    def _best_prices(self) -> Floats:
        """Coordinate ascent from the rates of whole models; any prices are valid."""
        prices: Floats = 1 / self._effort.sum(axis=1)
        prices = np.where(np.isfinite(prices), prices, 0)
        best = self._per_sample_s(prices)
        step = 0.5
        for _ in range(_ROUNDS):
            moved = False
            for place in range(len(prices)):
                for factor in (1 + step, 1 / (1 + step)):
                    tried = prices.copy()
                    tried[place] *= factor
                    value = self._per_sample_s(tried)
                    if value > best * (1 + 1e-12):
                        prices, best, moved = tried, value, True
            if not moved:
                step /= 2
        return prices


def _least_effort(space: Space) -> Floats:
    """Device seconds of each row of a sample on each type, at the best tp and micro-batch."""
    effort = np.full((len(space.places), space.costs.row_count), np.inf)
    for kind, m, recompute in space.atoms:
        prefix = space.costs.work_prefix_s(kind, m, recompute=recompute)
        place = space.place_of(kind)
        effort[place] = np.minimum(effort[place], np.diff(prefix) * kind.tp / m)
    return effort
