"""Mixes of stages: how many stages of each option a pipeline of about equal loads has.

Such a pipeline holds the most rows where every type spends its devices on the options that hold
most under that load. Types do not share stages, so that each is a knapsack of its own:

    rows[s + 1, d] = max over options o of rows[s, d - devices(o)] + floor((load - sends) / row_s),

at most what memory holds, for all loads of a grid and all limits of the gradient exchange at once.
Groups of a width may take the devices that nodes cut into such groups have: wide options first.

Legend of arrays: o option of a type, k position of a type in the pipeline, j load and limit of the
exchange, s stages, d devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.options import Space, node_width
from arachne_opt.solvers.seeds.kinds import TINY, Kinds

_Rows = npt.NDArray[np.int16]

_STEP, _WORST = 1.03, 3.0  # loads of the grid, up to this multiple of the even one
_HOPED = 1.15  # pipelines beyond this multiple of the best known time are not looked at
_EXCHANGE = np.array([0.03, 0.1, np.inf])  # parts of an iteration that the exchange may take
_ENDLESS = 0.25  # taken for the last of these
# Stages of pipelines that are looked at together: memory is that of their middle.
_RANGES = ((1, 3), (4, 6), (7, 10), (11, 20))
_NEVER = -10_000  # rows of what cannot be
_KEPT, _LOOKED_AT = 4, 24  # mixes of a batch and a range
_ROUNDED = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Stages of a pipeline.

    Args:
        batch: samples of a micro-batch.
        atoms: numbers of atoms of the facts, one of each stage.
        load_s: the load of all stages that they were chosen for.
        estimate_s: seconds of an iteration.
    """

    batch: int
    atoms: tuple[int, ...]
    load_s: float
    estimate_s: float


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """Options of a type at a batch: numbers of atoms, devices, replicas and widths of each."""

    place: int
    room: int
    atoms: Ints
    devices: Ints
    replicas: Ints
    widths: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Most rows of the stages of a type.

    Args:
        rows: of a stage (shape [o, k, j]).
        best: one array [s, k, j, d] for every width of groups, the widest first.
        groups: options of each width.
    """

    of: _Options
    rows: _Rows
    best: tuple[_Rows, ...]
    groups: tuple[Ints, ...]

    def trace(self, stages: int, k: int, j: int) -> list[int]:
        """The atoms of the most rows on all devices."""
        found: list[int] = []
        level, s, d = len(self.best) - 1, stages, self.of.room
        while s > 0:
            best = self.best[level]
            rows = best[s, k, j, d]
            if level > 0:
                wider = self.best[level - 1]
                most = min(d, wider.shape[3] - 1)
                if wider[s, k, j, most] == rows:
                    level, d = level - 1, most
                    continue
            o = next(
                o
                for o in self.groups[level].tolist()
                if (need := int(self.of.devices[o])) <= d
                and best[s - 1, k, j, d - need] + self.rows[o, k, j] == rows
            )
            found.append(int(self.of.atoms[o]))
            s, d = s - 1, d - int(self.of.devices[o])
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """Stages of all types: an order of the types, the stages of each, and the number of a load."""

    seconds: float
    stages: int
    j: int
    order: tuple[int, ...]
    picks: tuple[Ints, ...]

    def atoms(self, tables: Sequence[_Table]) -> tuple[int, ...]:
        """The atoms of all stages, the least first."""
        found: list[int] = []
        left = self.stages
        for k in range(len(self.order) - 1, -1, -1):
            own = int(self.picks[k][left, self.j])
            found += tables[self.order[k]].trace(own, k, self.j)
            left -= own
        return tuple(sorted(found))


class Mixes:
    """Estimates mixes of the batches of a problem."""

    def __init__(self, space: Space, kinds: Kinds) -> None:
        self._space = space
        self._facts = facts = kinds.facts
        self._tp, self._ep = (
            np.array([getattr(a.kind, name) for a in facts.atoms]) for name in ("tp", "ep")
        )
        self._place = np.array([space.place_of(a.kind) for a in facts.atoms])
        self._width = np.array([node_width(a.kind) for a in facts.atoms])
        self._exchange_s = np.minimum(kinds.exchange_row_s, 1 / TINY)[facts.kind]
        self._room = space.room_of_width()
        self._widest = np.array(
            [self._room[p, w] for p, w in zip(self._place, self._width, strict=True)]
        )
        self._rows = space.costs.row_count - 2

    def of_batch(self, batch: int, below_s: float = np.inf) -> list[Mix]:
        """Promising mixes of a batch; those that take clearly longer than a time are left out."""
        places = range(len(self._space.places))
        options = [of for p in places if len((of := self._of(p, batch)).atoms)]
        if not options or self._rows < 1:
            return []
        most = min(self._space.in_stages, self._rows)
        most = min(most, sum(o.room // int(o.devices.min()) for o in options))
        found: list[Mix] = []
        for low, high in _RANGES:
            if low <= most:
                found += self._of_range(batch, options, (low, min(high, most)), below_s)
        return found

    def _of(self, place: int, batch: int) -> _Options:
        """Options of a type that no other one is better than in every respect."""
        facts = self._facts
        replicas = batch // facts.microbatch
        devices = np.maximum(1, replicas * self._tp)
        fits = (self._place == place) & (batch % facts.microbatch == 0) & (replicas > 0)
        fits &= (replicas % self._ep == 0) & (devices <= self._widest) & (facts.first < 1 / TINY)
        mine = np.flatnonzero(fits)
        held = facts.first[mine] + 3 * facts.second[mine]
        exchange = self._exchange_s[mine] * (1 - 1 / np.maximum(1, replicas[mine]))
        costs = np.stack([devices[mine], self._width[mine], facts.row_s[mine], held, exchange])
        as_good = (costs[:, :, None] <= costs[:, None, :]).all(axis=0)
        later = np.arange(len(mine))[:, None] > np.arange(len(mine))
        better = as_good & ~(as_good.T & later)
        np.fill_diagonal(better, val=False)
        atoms = mine[~better.any(axis=0)]
        room = self._room[place, 1]
        return _Options(place, room, atoms, devices[atoms], replicas[atoms], self._width[atoms])

    def _of_range(
        self, batch: int, options: Sequence[_Options], stages: tuple[int, int], below_s: float
    ) -> Iterator[Mix]:
        """Mixes of at least and at most so many stages."""
        low, high = stages
        usual = (low + high) / 2
        rounds = -(-self._space.problem.global_batch // batch)
        loads = self._loads(options, _HOPED * below_s / (rounds - 1 + low))
        if not len(loads):
            return
        load_s, part = np.repeat(loads, len(_EXCHANGE)), np.tile(_EXCHANGE, len(loads))
        exchange_s = part * (rounds - 1 + usual) * load_s
        flight = usual * (1 - (np.arange(len(options)) + 0.5) / len(options))
        tables = [self._table(o, load_s, exchange_s, flight, high) for o in options]
        whole_s = (rounds - 1 + np.arange(high + 1)[:, None]) * load_s
        whole_s = whole_s * (1 + np.where(np.isfinite(part), part, _ENDLESS))
        whole_s[:low] = np.inf
        seen: set[tuple[int, ...]] = set()
        for way in self._ways(tables, whole_s)[:_LOOKED_AT]:
            atoms = way.atoms(tables)
            if atoms not in seen and len(seen) < _KEPT:
                seen.add(atoms)
                load = float(load_s[way.j])
                yield Mix(batch=batch, atoms=atoms, load_s=load, estimate_s=way.seconds)

    def _ways(self, tables: Sequence[_Table], whole_s: Floats) -> list[_Way]:
        """Ways that hold all rows, with the least load of each limit, the quickest first."""
        alike = all((t.rows == t.rows[:, :1]).all() for t in tables)
        types = range(len(tables))
        limits = len(_EXCHANGE)
        found = []
        for order in [tuple(types)] if alike else permutations(types):
            most, picks = _joined(tables, order)
            seconds = np.where(most >= self._rows, whole_s, np.inf)
            for s, e in np.ndindex(len(seconds), limits):
                j = int(seconds[s, e::limits].argmin()) * limits + e
                if np.isfinite(seconds[s, j]):
                    found.append(_Way(float(seconds[s, j]), s, j, order, picks))
        return sorted(found, key=lambda way: way.seconds)

    def _loads(self, options: Sequence[_Options], most_s: float) -> Floats:
        """Loads under which some option just holds whole rows, one of each step of a grid."""
        row_s, send_s = self._facts.row_s, self._facts.send_s
        speed = sum(o.room * float((1 / (row_s[o.atoms] * o.devices)).max()) for o in options)
        least_s = self._rows / speed
        most_s = min(most_s, _WORST * least_s)
        atoms = np.concatenate([o.atoms for o in options])
        whole = np.arange(1, self._rows + 1)
        loads = (send_s[atoms][:, None] + row_s[atoms][:, None] * whole).ravel()
        loads = loads[(loads >= least_s) & (loads <= most_s)] * (1 + _ROUNDED)
        step = np.floor(np.log(loads / least_s) / np.log(_STEP)).astype(np.int64)
        order = np.lexsort((-loads, step))
        _, first = np.unique(step[order], return_index=True)
        found: Floats = loads[order[first]]
        return found

    def _table(
        self, of: _Options, load_s: Floats, exchange_s: Floats, flight: Floats, high: int
    ) -> _Table:
        """The knapsack of a type, with so many micro-batches in flight at each position."""
        facts, at = self._facts, of.atoms
        rows = np.floor((load_s - facts.send_s[at][:, None]) / facts.row_s[at][:, None] + _ROUNDED)
        ring = self._exchange_s[at] * (1 - 1 / of.replicas)
        rows = np.minimum(rows, np.floor(exchange_s / np.maximum(ring, TINY)[:, None]))
        held = facts.first[at][:, None] + facts.second[at][:, None] * np.maximum(1, flight)
        capacity = np.floor(1 / np.maximum(held, TINY) + 0.1)
        rows = np.minimum(rows[:, None], capacity[..., None]).clip(max=self._rows + 2)
        whole = np.where(rows >= 1, rows, _NEVER).astype(np.int16)
        best, groups = self._knapsack(of, whole, high)
        return _Table(of, whole, tuple(best), tuple(groups))

    def _knapsack(self, of: _Options, rows: _Rows, high: int) -> tuple[list[_Rows], list[Ints]]:
        """The most rows after the options of each width, and these options."""
        best: _Rows = np.full((high + 1, *rows.shape[1:], 1), _NEVER, dtype=np.int16)
        best[0] = 0
        found, groups = [], []
        for width in sorted({*of.widths.tolist(), 1}, reverse=True):
            room = max(best.shape[3] - 1, self._room.get((of.place, width), 0))
            more = np.repeat(best[..., -1:], room + 1 - best.shape[3], axis=3)
            best = np.concatenate([best, more], axis=3)
            mine = np.flatnonzero(of.widths == width)
            for s in range(high):
                for o in mine.tolist():
                    need = int(of.devices[o])
                    after, before = best[s + 1][..., need:], best[s][..., : room + 1 - need]
                    np.maximum(after, before + rows[o][..., None], out=after)
            found.append(best)
            groups.append(mine)
        return found, groups


def _joined(tables: Sequence[_Table], order: Sequence[int]) -> tuple[Ints, tuple[Ints, ...]]:
    """Most rows of all types in an order (shape [s, j]), and the stages of each type for that."""
    own = [tables[p].best[-1][:, k, :, -1].astype(np.int64) for k, p in enumerate(order)]
    total: Ints = own[0]
    picks: list[Ints] = [np.repeat(np.arange(len(total))[:, None], total.shape[1], axis=1)]
    for rows in own[1:]:
        before, total, pick = total, np.full_like(total, 2 * _NEVER), np.zeros_like(total)
        for s in range(len(rows)):
            more = before[: len(rows) - s] + rows[s]
            better = more > total[s:]
            total[s:][better] = more[better]
            pick[s:][better] = s
        picks.append(pick)
    return total, tuple(picks)
