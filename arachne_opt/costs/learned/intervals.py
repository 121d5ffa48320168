"""Conformal intervals: errors on held-out points, in units of what the model was unsure of.

A score is (log measured - log predicted) / spread on a point that the prediction had not seen; the
q-quantile of a new point is predicted * exp(spread * q-quantile of the scores), taken with the rank
ceil((n + 1) q) that makes split-conformal intervals valid for exchangeable points (Vovk et al.
2005; Lei et al. 2018, arXiv 1604.04173).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.learned.samples import Floats
from arachne_opt.errors import InputError

_MOST_KEPT = 400


@dataclass(frozen=True, slots=True)
class Scores:
    """Held-out scores in rising order."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> Scores:
        """Scores of held-out points; of very many, evenly spread ones are kept."""
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        if len(ordered) > _MOST_KEPT:
            picks = np.linspace(0, len(ordered) - 1, _MOST_KEPT).round().astype(int)
            ordered = ordered[picks]
        return cls(tuple(round(float(x), 6) for x in ordered))

    def quantile(self, q: float) -> float:
        """The score that a new point stays below with probability q."""
        require_share(q)
        n = len(self.values)
        # From the nearer end, so that both tails are cautious.
        rank = math.ceil((n + 1) * q) if q >= 0.5 else math.floor((n + 1) * q)
        return self.values[min(n, max(1, rank)) - 1]


def require_share(q: float) -> None:
    """Refuses what is no share strictly between 0 and 1."""
    if not 0 < q < 1:
        raise InputError(f"a quantile lies between 0 and 1, not {q}", hint="0.9")
