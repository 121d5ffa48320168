"""The least load of chains of stages whose inner rows are alike: whole rows, and a head of its own.

Legend of arrays: n structure, b batch, v way of filling, i block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.seeds.kinds import TINY

_HALVINGS = 9
_WORST = 4.0  # loads beyond this multiple of the even one are not looked at
_WHOLE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """Stages in blocks, arrays of shape [n, b, v, i].

    Args:
        rows: inner rows to be held by all stages.
        stages: of each block.
        row_s: of a row of a block.
        send_s: of every stage; the stages at the ends of a block together send ``extra_s`` more.
        head_s: the head on the last block (shape [n, b, v]).
        capacity: rows that memory holds.
        last: number of the last block (shape [n, 1, 1, 1]).
    """

    rows: int
    stages: Floats
    row_s: Floats
    send_s: Floats
    extra_s: Floats
    head_s: Floats
    capacity: Floats
    last: Ints

    def least_load(self) -> tuple[Floats, Floats]:
        """The least load under which all rows find a stage (shape [n, b, v], infinite for none).

        The other array has the rows of a usual stage of each block under that load.
        """
        even = self._even_load()
        high = _WORST * even + self.head_s
        low, possible = 0.9 * even, self._held(high) >= self.rows
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            good = self._held(middle) >= self.rows
            low, high = np.where(good, low, middle), np.where(good, middle, high)
        return np.where(possible, high, np.inf), self._rows_of(high, self.send_s)

    def fill_s(self) -> Floats:
        """The way of a micro-batch through all stages (shape [n, b, v])."""
        speed = np.maximum((self.stages / self.row_s).sum(axis=3), TINY)
        sends = (self.stages * self.send_s).sum(axis=3) + self.extra_s.sum(axis=3)
        found: Floats = self.stages.sum(axis=3) * self.rows / speed + sends + self.head_s
        return found

    def _even_load(self) -> Floats:
        """The load if rows were divisible and memory endless."""
        speed = np.maximum((self.stages / self.row_s).sum(axis=3), TINY)
        sends = (self.stages * self.send_s / self.row_s).sum(axis=3)
        found: Floats = (self.rows + sends) / speed
        return found

    def _rows_of(self, load: Floats, sends: Floats) -> Floats:
        rows = np.floor((load[..., None] - sends) / self.row_s + _WHOLE)
        found: Floats = rows.clip(0, self.capacity)
        return found

    def _held(self, load: Floats) -> Floats:
        """Rows that all stages hold under a load, -1 where the head does not fit."""
        usual = self._rows_of(load, self.send_s)
        edge = self._rows_of(load, self.send_s + self.extra_s)
        rows = np.where(self.stages > 0, (self.stages - 1) * usual + edge, 0).sum(axis=3)

        def last(values: Floats) -> Floats:
            found: Floats = np.take_along_axis(values, self.last, axis=3)[..., 0]
            return found

        sends, row_s = last(self.send_s + self.extra_s), last(self.row_s)
        room = np.floor((load - sends - self.head_s) / row_s + _WHOLE).clip(0, last(self.capacity))
        rows = rows - last(edge) + room
        return np.where(sends + self.head_s <= load, rows, -1)
