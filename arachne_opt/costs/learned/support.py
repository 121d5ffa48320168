"""Where a learned model may speak: near what was measured, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from arachne_opt.costs.learned.samples import Flags, Floats, Samples

# Outside the measured range of a cell the ensemble still counts up to this factor: the usual step
# between two micro-batches.
REACH = 2.0

NEAR = "near"
RANGE = "range"


@dataclass(frozen=True, kw_only=True)
class Support:
    """Measured ranges of the rising inputs, which are logarithms, by cell.

    Args:
        ranges: by cell, smallest and largest of each rising input.
        labels: by kind of label, those that were measured.
    """

    ranges: Mapping[str, tuple[Floats, Floats]]
    labels: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, samples: Samples) -> Support:
        """The support of measured points."""
        ranges = {}
        for cell in sorted(set(samples.cells)):
            inside = samples.rising[np.array([c == cell for c in samples.cells])]
            ranges[cell] = inside.min(axis=0), inside.max(axis=0)
        labels = {kind: frozenset(found) for kind, found in samples.unseen.items()}
        return cls(ranges=ranges, labels=labels)

    def places(self, samples: Samples) -> tuple[str, ...]:
        """By point: ``near``, ``range`` (far from what was measured), or what label is new."""
        near = self._near(samples)
        found = []
        for i in range(samples.count):
            new = [k for k, v in samples.unseen.items() if v[i] not in self.labels.get(k, ())]
            found.append(new[0] if new else NEAR if near[i] else RANGE)
        return tuple(found)

    def _near(self, samples: Samples) -> Flags:
        slack = np.log(REACH)
        near = np.zeros(samples.count, dtype=bool)
        for i, cell in enumerate(samples.cells):
            if cell in self.ranges:
                low, high = self.ranges[cell]
                row = samples.rising[i]
                near[i] = bool((row >= low - slack).all() and (row <= high + slack).all())
        return near

    def to_json(self) -> dict[str, Any]:
        """JSON values that ``support_from_json`` reads."""
        ranges = {c: [low.tolist(), high.tolist()] for c, (low, high) in self.ranges.items()}
        return {"ranges": ranges, "labels": {k: sorted(v) for k, v in self.labels.items()}}


def support_from_json(value: Mapping[str, Any]) -> Support:
    """The support that ``Support.to_json`` wrote."""
    ranges = {str(c): (np.array(low), np.array(high)) for c, (low, high) in value["ranges"].items()}
    labels = {str(k): frozenset(map(str, v)) for k, v in value["labels"].items()}
    return Support(ranges=ranges, labels=labels)
