"""What a learned cost model sees of each measured or asked point, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from arachne_opt.errors import InputError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Features of n points.

    Args:
        terms: [n, terms]: what each part of the work takes by the data sheet, such as operations
            over peak; any unit, as a factor is fitted for each. Not falling with tokens.
        scales: [n, terms] labels: points of one label share an efficiency, such as a device type.
        rising: [n, inputs]: grows with tokens and clips; a prediction never falls with it.
        free: [n, inputs]: everything else that a network may use.
        cells: label of each point; what was measured at no point of a cell is outside the support.
        unseen: by kind of label, such as ``type``: labels that may be new as a whole.
    """

    terms: Floats
    scales: NDArray[np.str_]
    rising: Floats
    free: Floats
    cells: tuple[str, ...]
    unseen: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        counts = {len(self.terms), len(self.scales), len(self.rising), len(self.free)}
        if counts != {len(self.cells)} or not len(self.cells):
            raise InputError(f"features of {sorted(counts)} points for {len(self.cells)} labels")
        if not all(np.isfinite(x).all() for x in (self.terms, self.rising, self.free)):
            raise InputError("features must be finite")
        if (self.terms < 0).any() or not self.terms.any(axis=1).all():
            raise InputError("every point needs terms of work that are not negative")

    @property
    def count(self) -> int:
        """Number of points."""
        return len(self.cells)

    def at(self, index: Flags | Sequence[int]) -> Samples:
        """Some of the points."""
        where = np.arange(self.count)[np.asarray(index)]
        return replace(
            self,
            terms=self.terms[where],
            scales=self.scales[where],
            rising=self.rising[where],
            free=self.free[where],
            cells=tuple(self.cells[i] for i in where),
            unseen={k: tuple(v[i] for i in where) for k, v in self.unseen.items()},
        )


@dataclass(frozen=True, kw_only=True)
class Targets:
    """What was measured at each point.

    Args:
        values: positive, such as seconds or bytes.
        groups: points of one group, such as a shape, are held out together.
        weights: how much each point counts.
    """

    values: Floats
    groups: tuple[str, ...]
    weights: Floats

    def __post_init__(self) -> None:
        if not len(self.values) == len(self.groups) == len(self.weights):
            raise InputError("values, groups and weights differ in number")
        if not (np.isfinite(self.values).all() and (self.values > 0).all()):
            raise InputError("measured values must be positive and finite")

    @property
    def logs(self) -> Floats:
        """Natural logarithms of the values."""
        return np.log(self.values)
