"""Arrays of everything that a pipeline of a given batch can cost, filled when first needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.options import Space, StageOption


class BatchTables:
    """Prices of all options at one batch.

    Legend: o option, a first row of a stage, b end of a stage, k micro-batches in flight.

    Args:
        across_ab: gradient exchange of a stage across pipelines, added to that inside the stage.
    """

    def __init__(
        self,
        space: Space,
        batch: int,
        options: Sequence[StageOption],
        across_ab: Floats | None = None,
    ) -> None:
        self.space = space
        self.costs = space.costs
        self.batch = batch
        self.options = tuple(options)
        self.rows = space.costs.row_count
        self.across_ab = across_ab
        count, cuts = len(self.options), self.rows + 1
        self.usage: Ints = np.array(
            [space.usage(o.blocks) for o in self.options], dtype=np.int64
        ).reshape(count, len(space.limits))
        self.work_oab = np.full((count, cuts, cuts), np.inf)
        self.sync_oab = np.full((count, cuts, cuts), np.inf)
        self.update_oa = np.zeros((count, cuts))
        self._replicas = np.array([o.replicas for o in self.options], dtype=np.int64)
        self._tp_op = self._tp_of_places()
        self._filled = np.zeros(count, dtype=bool)
        self._ends: dict[int, Ints] = {}
        self._ends_filled: dict[int, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
        self._forward_oob = np.zeros((count, count, cuts))
        self._backward_oob = np.zeros((count, count, cuts))
        self._cut_filled = np.zeros((count, count), dtype=bool)

    def fill(self, options: Ints) -> None:
        """Makes sure that work, sync and update of these options are there."""
        for o in np.unique(options):
            if not self._filled[o]:
                self._fill_option(int(o))
                self._filled[o] = True

    def allowed(self, templates: Ints) -> NDArray[np.bool_]:
        """Which templates keep to the restrictions (shape [n, stages])."""
        kept = np.ones(len(templates), dtype=bool)
        rules = self.space.restrictions
        if rules.equal_dp:
            replicas = self._replicas[templates]
            kept &= (replicas == replicas[:, :1]).all(axis=1)
        if rules.one_tp:
            tp = self._tp_op[templates]
            least = np.where(tp > 0, tp, np.iinfo(np.int64).max).min(axis=1)
            most = tp.max(axis=1)
            kept &= ((most == 0) | (most == least)).all(axis=1)
        return kept

    def even_cuts(self, stages: int) -> Ints | None:
        """The only cuts of so many stages where layers must be even, else None."""
        if not self.space.restrictions.even_layers:
            return None
        return np.array([self.rows * i // stages for i in range(stages + 1)])

    def _tp_of_places(self) -> Ints:
        found = np.zeros((len(self.options), len(self.space.places)), dtype=np.int64)
        for o, option in enumerate(self.options):
            for block in option.blocks:
                found[o, self.space.place_of(block.kind)] = block.kind.tp
        return found

    def ends(self, options: Ints, in_flight: int) -> Ints:
        """For each option the furthest end that memory allows, by first row (shape [.., a])."""
        if in_flight not in self._ends:
            shape = (len(self.options), self.rows + 1)
            self._ends[in_flight] = np.zeros(shape, dtype=np.int64)
            self._ends_filled[in_flight] = np.zeros(len(self.options), dtype=bool)
        table, filled = self._ends[in_flight], self._ends_filled[in_flight]
        for o in np.unique(options):
            if not filled[o]:
                table[o, : self.rows] = self._furthest_end(self.options[o], in_flight)
                filled[o] = True
        found: Ints = table[options]
        return found

    def cuts(self, before: Ints, after: Ints) -> tuple[Floats, Floats]:
        """Forward and backward seconds through boundaries between options, by cut."""
        known = self._cut_filled[before, after]
        if not known.all():
            pairs = np.stack([before[~known], after[~known]], axis=1)
            for o, p in np.unique(pairs, axis=0):
                self._fill_cut(int(o), int(p))
        return self._forward_oob[before, after], self._backward_oob[before, after]

    def _fill_option(self, o: int) -> None:
        option = self.options[o]
        later = np.triu(np.ones((self.rows + 1, self.rows + 1), dtype=bool), 1)
        work = np.zeros((self.rows + 1, self.rows + 1))
        for block in option.blocks:
            prefix = self.costs.work_prefix_s(
                block.kind, option.microbatch, recompute=option.recompute
            )
            work = np.maximum(work, prefix[None, :] - prefix[:, None])
            update = self.costs.update_s(block.kind, option.microbatch)
            self.update_oa[o, : self.rows] = np.maximum(self.update_oa[o, : self.rows], update)
        self.work_oab[o] = np.where(later, work, np.inf)
        self.sync_oab[o] = self.costs.stage_sync_s(option.ring, cautious=True)
        if self.across_ab is not None:
            self.sync_oab[o] += self.across_ab

    def _furthest_end(self, option: StageOption, in_flight: int) -> Ints:
        shards = option.replicas if self.space.problem.options.zero1 else 1
        ends = [
            self.costs.furthest_end(
                block.kind,
                option.microbatch,
                in_flight,
                shards=shards,
                recompute=option.recompute,
            )
            for block in option.blocks
        ]
        found: Ints = np.min(ends, axis=0)
        return found

    def _fill_cut(self, o: int, p: int) -> None:
        a, b = self.options[o], self.options[p]
        source, target, batch = a.ring, b.ring, self.batch
        if len(a.blocks) == len(b.blocks) == 1:  # one link, the same between all pairs
            batch //= min(a.replicas, b.replicas)
            source, target = source[:1], target[:1]
        forward, backward = self.costs.cut_s(source, target, batch)
        self._forward_oob[o, p], self._backward_oob[o, p] = forward, backward
        self._cut_filled[o, p] = True
