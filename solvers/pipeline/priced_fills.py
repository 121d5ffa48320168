"""The least fill of all pipelines of a batch, bounded by prices of devices, without counting them.

For any prices w >= 0 of devices, of which there are N, and every pipeline that takes d of them,

    fill >= min over all pipelines of (fill + w · d) - w · N.
"""

from __future__ import annotations

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.priced_chains import PricedChains, Question
from arachne_opt.solvers.pipeline.stage_facts import PricedStages

# Worth of all devices, as parts of the time that is left, and how much of it one place has more.
_WORTHS = (0.06, 0.12, 0.25, 0.5, 1.0, 2.0)
_TILTS = (0.4, 1.0, 2.5)


class PricedFills:
    """Bounds of all pipelines of a batch.

    Args:
        stages: of the batch.
        limits: devices of each place.
        most_stages: of a pipeline.
        prices: what devices of the places are worth beside each other.
    """

    def __init__(
        self, stages: PricedStages, limits: Ints, most_stages: int, prices: Floats
    ) -> None:
        self._chains = PricedChains(stages, most_stages)
        self._limits = limits
        tilts = {tuple(np.where(np.arange(len(limits)) == 0, t, 1.0)) for t in _TILTS}
        rows = [prices * np.array(tilt) for tilt in sorted(tilts)]
        self._directions = [row / (row @ limits) for row in rows if row @ limits > 0]

    @property
    def count(self) -> int:
        """Number of stages."""
        return self._chains.count

    def least_fill_s(self, load_s: float, exchange_s: float, most_s: float) -> float:
        """A bound of the least fill of any template and cuts; infinite if none keeps to the limits.

        Fills above ``most_s`` may be told as infinite.
        """
        allowed = self._chains.exchange_s <= exchange_s
        one, best = np.ones(1), 0.0
        for direction in self._directions:
            for worth in _WORTHS:
                prices = direction * worth * most_s
                question = Question(one, prices, load_s * one, np.inf * one, allowed)
                best = max(best, float(self._chains.least(question).price[0]) - worth * most_s)
                if best >= most_s:
                    return np.inf
        return best
