"""Sets of pipelines for one cluster: which estimates together train the most samples in a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.ranking import Ranked

_MOST_CELLS = 200_000


@dataclass(frozen=True, slots=True)
class Pick:
    """One estimate, taken ``copies`` times, with the micro-batches that each copy may run."""

    entry: int
    copies: int
    microbatches: int


class EstimatePool:
    """Estimated pipelines of many batches on any part of the cluster."""

    def __init__(self, ranked: list[Ranked], limits: Ints) -> None:
        self.ranked = ranked
        self.limits = limits
        self.owner = np.concatenate([np.full(len(r.load_s), i) for i, r in enumerate(ranked)])
        self.row = np.concatenate([np.arange(len(r.load_s)) for r in ranked])
        self.batch = np.array([r.batch for r in ranked])[self.owner]
        self.load_s = np.concatenate([r.load_s for r in ranked])
        self.stages = np.concatenate([r.stages for r in ranked])
        self.sync_s = np.concatenate([r.sync_s for r in ranked])
        self.stage_rows = np.concatenate([r.stage_rows for r in ranked])
        used = np.concatenate([r.used for r in ranked])
        # Device counts are cut into units where there are too many combinations of them.
        self.unit = _units(limits)
        self.cells = limits // self.unit
        self.used = -(-used // self.unit)

    def sets(
        self,
        pipelines: int,
        seconds: float,
        across_row_s: float,
        part: float,
        most: int,
        stages: int | None = None,
    ) -> Iterator[tuple[Pick, ...]]:
        """Sets of so many pipelines of at most two shapes that train the most samples.

        Args:
            seconds: time of an iteration that is to be beaten.
            across_row_s: gradient exchange of a row across pipelines.
            part: part of the time that the gradient exchange may take.
            most: how many sets.
            stages: stages of all pipelines, if they are to have equally many.
        """
        capacity = self._capacity(seconds, across_row_s, part)
        if stages is not None:
            capacity = np.where(self.stages == stages, capacity, 0)
        good = np.flatnonzero(capacity > 0)
        if not len(good):
            return
        order = good[np.argsort(capacity[good], kind="stable")]
        table = self._best_by_devices(order)
        totals, firsts, seconds_, copies_of = [], [], [], []
        for copies in range((pipelines + 1) // 2, pipelines + 1):
            left = self.cells - copies * self.used[good]
            fits = (left >= 0).all(axis=1)
            mine, left = good[fits], left[fits]
            rest = pipelines - copies
            partner = np.full(len(mine), -1)
            total = copies * capacity[mine]
            if rest:
                rank = table[tuple((left // rest).T)]
                partner = np.where(rank >= 0, order[rank], -1)
                total = np.where(partner >= 0, total + rest * capacity[partner], -1)
            totals.append(total)
            firsts.append(mine)
            seconds_.append(partner)
            copies_of.append(np.full(len(mine), copies))
        total, first = np.concatenate(totals), np.concatenate(firsts)
        partner, copies_all = np.concatenate(seconds_), np.concatenate(copies_of)
        for n in np.argsort(-total, kind="stable")[:most].tolist():
            if total[n] <= 0:
                return
            picks = [self._pick(int(first[n]), int(copies_all[n]), capacity)]
            if partner[n] >= 0:
                rest = pipelines - int(copies_all[n])
                picks.append(self._pick(int(partner[n]), rest, capacity))
            yield tuple(picks)

    def estimate_s(self, picks: tuple[Pick, ...], samples: int, across_row_s: float) -> float:
        """Time of an iteration if all pipelines of a set end together."""
        done, rate, inside, rows = float(samples), 0.0, 0.0, 0.0
        for pick in picks:
            i, batch = pick.entry, float(self.batch[pick.entry])
            done += pick.copies * batch * float(self.stages[i] - 1)
            rate += pick.copies * batch / float(self.load_s[i])
            inside = max(inside, float(self.sync_s[i]))
            rows = max(rows, float(self.stage_rows[i]))
        return done / rate + inside + across_row_s * rows

    def ranked_entry(self, entry: int) -> Ranked:
        """One estimate as a list of its own."""
        return self.ranked[self.owner[entry]].take(self.row[[entry]])

    def _pick(self, entry: int, copies: int, capacity: Floats) -> Pick:
        rounds = int(capacity[entry] / self.batch[entry])
        return Pick(entry, copies, max(1, rounds))

    def _capacity(self, seconds: float, across_row_s: float, part: float) -> Floats:
        """Samples that each pipeline trains in the time; 0 where its exchange takes too long."""
        exchange = self.sync_s + across_row_s * self.stage_rows
        rounds = (1 - part) * seconds / self.load_s - (self.stages - 1)
        good = (exchange <= part * seconds) & (rounds >= 1)
        found: Floats = np.where(good, rounds * self.batch, 0)
        return found

    def _best_by_devices(self, order: Ints) -> Ints:
        """For each number of devices the rank (in rising capacity) of the best that fits; or -1."""
        table = np.full(tuple(self.cells + 1), -1)
        used = self.used[order]
        inside = (used <= self.cells).all(axis=1)
        ranks = np.arange(len(order))
        table[tuple(used[inside].T)] = ranks[inside]  # later ranks, the better ones, win
        for axis in range(table.ndim):
            np.maximum.accumulate(table, axis=axis, out=table)
        return table


def _units(limits: Ints) -> Ints:
    unit = np.ones(len(limits), dtype=np.int64)
    while np.prod(limits // unit + 1) > _MOST_CELLS:
        unit[np.argmax(limits // unit)] *= 2
    return unit
