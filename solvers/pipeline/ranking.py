"""Block templates by estimated time: for each type one kind of stage, repeated.

The estimate takes rows as divisible and alike: with λ the load of all stages, a stage with c
seconds a row and x seconds of sends holds (λ - x) / c rows, at most what its memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.tables import Port
from arachne_opt.solvers.pipeline.options import Space, node_width

_MESSAGE_BYTES = 50e6  # a usual share of a gradient ring, to read its bandwidth
MOST_BLOCKS = 3
_SPLIT_ROW = 0.3
_FEW_ATOMS = 6
_PER_DEVICES = 2
_PAIR_CELLS = 400  # choices of atom and stages of a block, beyond which some are left out
_MANY_PLACES = 4  # types and zones; with so many, there are many pairs and triples of them
_PAIR_CELLS_OF_MANY = 200
_TRIPLE_CELLS_OF_MANY = 24
_TRIPLE_CELLS = 60
_TRIPLE_STAGES = 8  # stages of a block where three types take part


@dataclass(frozen=True, slots=True)
class Ranked:
    """Block templates of a batch: atoms and stages of each block, in order, with estimates.

    Args:
        blocks: shape [n, blocks, 2]: number of the atom, number of stages; 0 stages fill up.
        load_s: load of every stage.
        stages: stages of all blocks.
        sync_s: gradient exchange inside the slowest stage.
        stage_rows: rows of the longest stage.
        used: devices of each place.
    """

    batch: int
    blocks: Ints
    load_s: Floats
    stages: Ints
    sync_s: Floats
    stage_rows: Floats
    used: Ints

    def estimate_s(self, microbatches: int) -> Floats:
        """Seconds of an iteration."""
        estimate: Floats = (microbatches - 1 + self.stages) * self.load_s + self.sync_s
        return estimate

    def first(self, count: int) -> Ranked:
        """The first templates."""
        return self.take(np.arange(min(count, len(self.load_s))))

    def take(self, chosen: Ints) -> Ranked:
        """Some of the templates."""
        return Ranked(
            self.batch,
            self.blocks[chosen],
            self.load_s[chosen],
            self.stages[chosen],
            self.sync_s[chosen],
            self.stage_rows[chosen],
            self.used[chosen],
        )


class Ranking:
    """Estimates for all batches of a problem; the facts of atoms are gathered once."""

    def __init__(self, space: Space) -> None:
        self.space = space
        costs, rows = space.costs, space.costs.row_count
        atoms = space.atoms
        self.rows = rows
        self.place = np.array([space.place_of(a.kind) for a in atoms])
        self.tp = np.array([a.kind.tp for a in atoms])
        self.ep = np.array([a.kind.ep for a in atoms])
        self.plain = np.array([a.kind.ep == 1 and not a.recompute for a in atoms], dtype=bool)
        self.microbatch = np.array([a.microbatch for a in atoms])
        self.row_s = np.array(
            [
                float(costs.work_prefix_s(k, m, recompute=recompute)[-1]) / rows
                for k, m, recompute in atoms
            ]
        )
        self.send_s = np.array([row_send_s(space, a.kind, a.microbatch) for a in atoms])
        self.sync_row_s = np.array([row_exchange_s(space, a.kind) for a in atoms])
        self.room = np.array([_room(space, a.kind) for a in atoms])
        self.capacity = self._capacities()

    def batches(self, samples: int) -> list[int]:
        """Batches to consider: all that some atom can have, exact ones unless excess is allowed."""
        most = int((self.room // self.tp * self.microbatch).max(initial=0))
        if not self.space.problem.options.allow_excess:
            return [b for b in range(1, min(most, samples) + 1) if samples % b == 0]
        return list(range(1, min(most, samples) + 1))

    def full_batches(self) -> set[int]:
        """Batches of a plain stage on all devices of a type."""
        found = (self.room // self.tp * self.microbatch)[self.plain]
        return set(found.tolist())

    def rank(
        self,
        batch: int,
        microbatches: int,
        limits: Ints,
        keep: int,
        most_blocks: int = MOST_BLOCKS,
        *,
        plain: bool = False,
    ) -> Ranked:
        """The best block templates of a batch under device limits (by place).

        With ``plain`` neither experts are spread nor activations rebuilt.
        """
        found = self._all(batch, limits, most_blocks, plain=plain)
        order = np.argsort(found.estimate_s(microbatches), kind="stable")
        return found.take(order[:keep])

    def frontier(self, batch: int, limits: Ints) -> Ranked:
        """For every number of devices of each place the templates of the least load."""
        found = self._all(batch, limits, MOST_BLOCKS if len(limits) < MOST_BLOCKS else 2)
        key = found.used @ np.cumprod(np.concatenate([[1], limits[:-1] + 1]))
        order = np.lexsort((found.load_s, key))
        key = key[order]
        kept = np.ones(len(key), dtype=bool)
        kept[_PER_DEVICES:] = key[_PER_DEVICES:] != key[:-_PER_DEVICES]
        return found.take(order[kept])

    def _all(self, batch: int, limits: Ints, most_blocks: int, *, plain: bool = False) -> Ranked:
        count = batch // self.microbatch
        fits = (batch % self.microbatch == 0) & (count % self.ep == 0)
        fits &= count * self.tp <= np.minimum(self.room, limits[self.place])
        fits &= self.plain | (not plain)
        found: list[Ranked] = []
        places = [p for p in range(len(limits)) if fits[self.place == p].any()]
        for size in range(1, min(len(places), most_blocks) + 1):
            for order in permutations(places, size):
                atoms = [self._useful(np.flatnonzero(fits & (self.place == p))) for p in order]
                found.append(self._of_order(batch, limits, order, atoms))
        return _merged(batch, found, len(limits))

    def _of_order(
        self, batch: int, limits: Ints, order: tuple[int, ...], atoms: list[Ints]
    ) -> Ranked:
        """All choices of atoms and numbers of stages for blocks in a given order of places."""
        atom, stages = self._grid(batch, limits, order, atoms)
        load, rows_of = self._loads(atom, stages)
        good = np.isfinite(load)
        if self.space.restrictions.equal_dp:
            good &= (self.microbatch[atom] == self.microbatch[atom[:, :1]]).all(axis=1)
        atom, stages, load, rows_of = atom[good], stages[good], load[good], rows_of[good]
        total = stages.sum(axis=1)
        count = batch // self.microbatch[atom]
        sync = (self.sync_row_s[atom] * (count - 1) / count * rows_of).max(axis=1, initial=0)
        # A row is not divisible: on average part of a row of the quicker stages is in the way.
        load = load + np.where(total > 1, _SPLIT_ROW * self.row_s[atom].min(axis=1), 0)
        used = np.zeros((len(atom), len(limits)), dtype=np.int64)
        used[:, list(order)] = count * self.tp[atom] * stages
        blocks = np.stack([atom, stages], axis=2)
        return Ranked(batch, blocks, load, total, sync, rows_of.max(axis=1, initial=0), used)

    def _useful(self, atoms: Ints) -> Ints:
        """Atoms of one place that no other one is better than in every respect."""
        if len(atoms) <= _FEW_ATOMS:
            return atoms
        devices = self.tp[atoms] / self.microbatch[atoms]  # the same batch for all
        least = np.stack([devices, self.row_s[atoms], self.sync_row_s[atoms]], axis=1)
        most = self.capacity[atoms]
        as_good = (least[:, None] <= least[None]).all(axis=2)
        as_good &= (most[:, None] >= most[None]).all(axis=2)
        better = as_good & ~(as_good.T & (np.arange(len(atoms))[:, None] > np.arange(len(atoms))))
        np.fill_diagonal(better, val=False)
        return atoms[~better.any(axis=0)]

    def _grid(
        self, batch: int, limits: Ints, order: tuple[int, ...], atoms: list[Ints]
    ) -> tuple[Ints, Ints]:
        """Atom and stages of each block, for all combinations that the limits allow."""
        singles = []
        cells = (_PAIR_CELLS, _TRIPLE_CELLS)
        if len(limits) >= _MANY_PLACES:
            cells = (_PAIR_CELLS_OF_MANY, _TRIPLE_CELLS_OF_MANY)
        most_singles = cells[len(order) > 2]
        for place, mine in zip(order, atoms, strict=True):
            devices = batch // self.microbatch[mine] * self.tp[mine]
            most = np.minimum(np.minimum(self.room[mine], limits[place]) // devices, self.rows)
            most = np.minimum(most, self.space.in_stages)
            if len(order) > 2:
                most = np.minimum(most, _TRIPLE_STAGES)
            own = [(a, s) for a, n in zip(mine, most, strict=True) for s in range(1, n + 1)]
            step = -(-len(own) // most_singles)
            singles.append(np.array(own[::step]))
        picks = np.meshgrid(*(np.arange(len(s)) for s in singles), indexing="ij")
        chosen = np.stack([s[p.ravel()] for s, p in zip(singles, picks, strict=True)], axis=1)
        short = chosen[:, :, 1].sum(axis=1) <= min(self.rows, self.space.in_stages)
        chosen = chosen[short]
        return chosen[:, :, 0], chosen[:, :, 1]

    def _loads(self, atom: Ints, stages: Ints) -> tuple[Floats, Floats]:
        """Load of all stages, and rows of a stage of each block; inf where memory does not do."""
        slope, sends = self.row_s[atom], self.send_s[atom]
        after = stages[:, ::-1].cumsum(axis=1)[:, ::-1]
        total = self.capacity[atom, after] - self.capacity[atom, after - stages]
        capacity = total / stages
        sends = np.where(after.max(axis=1, keepdims=True) > 1, sends, 0)
        open_ = np.ones(atom.shape, dtype=bool)
        load = np.zeros(len(atom))
        rows_of = np.zeros(atom.shape)
        for _ in range(atom.shape[1]):
            speed = (open_ * stages / slope).sum(axis=1)
            rest = self.rows - (~open_ * stages * capacity).sum(axis=1)
            need = rest + (open_ * stages * sends / slope).sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                load = np.where(speed > 0, need / speed, np.inf)
            rows_of = np.where(open_, (load[:, None] - sends) / slope, capacity)
            open_ &= rows_of <= capacity
        feasible = (rows_of <= capacity + 1e-9).all(axis=1) & (rows_of > 0.3).all(axis=1)
        return np.where(feasible, load, np.inf), rows_of

    def _capacities(self) -> Ints:
        """Rows that the memory of the last k stages holds, by atom and k (cumulated)."""
        space = self.space
        shape = (len(space.atoms), space.in_stages + 1)
        found = np.zeros(shape, dtype=np.int64)
        zero1 = space.problem.options.zero1
        middle = min(1, self.rows - 1)
        for a, (kind, m, recompute) in enumerate(space.atoms):
            shards = max(1, int(self.room[a] // kind.tp // 2)) if zero1 else 1
            for k in range(1, shape[1]):
                ends = space.costs.furthest_end(kind, m, k, shards=shards, recompute=recompute)
                found[a, k] = ends[middle] - middle
                if found[a, k] <= 0:
                    break
        # The first row is often small; it must not be what a short pipeline fails by.
        found[:, 1] += found[:, 1] > 0
        return found.cumsum(axis=1)


def row_send_s(space: Space, kind: ReplicaKind, microbatch: int) -> float:
    """Sends both ways between two replicas of a kind, at a cut in the middle of the model."""
    forward, backward = space.costs.cut_s([kind], [kind], microbatch)
    middle = space.costs.row_count // 2
    return float(forward[middle] + backward[middle])


def row_exchange_s(space: Space, kind: ReplicaKind) -> float:
    """Gradient ring of a usual row among very many replicas of a kind."""
    port = Port(kind.device_type, kind.zone, 1)
    curve = space.problem.tables.route(port, port)
    model = space.problem.model
    whole = float(sum(model.parameter_bytes))
    if model.experts is not None:
        whole += sum(model.experts.parameter_bytes) / kind.ep
    size = whole / space.costs.row_count / min(4, kind.tp)
    return 2 * size * curve.seconds(_MESSAGE_BYTES) / _MESSAGE_BYTES if curve else np.inf


def _room(space: Space, kind: ReplicaKind) -> int:
    name, zone = kind.device_type, kind.zone
    nodes = (n for n in space.problem.nodes_of_type[name] if n.zone == zone)
    return sum(n.device_count // node_width(kind) * node_width(kind) for n in nodes)


def _merged(batch: int, found: list[Ranked], places: int) -> Ranked:
    """Several lists as one; missing blocks are filled with zero stages."""
    width = max((r.blocks.shape[1] for r in found), default=1)
    blocks = [np.pad(r.blocks, ((0, 0), (0, width - r.blocks.shape[1]), (0, 0))) for r in found]
    whole = np.zeros(0, dtype=np.int64)
    return Ranked(
        batch,
        np.concatenate([np.zeros((0, width, 2), dtype=np.int64), *blocks]),
        np.concatenate([np.zeros(0), *(r.load_s for r in found)]),
        np.concatenate([whole, *(r.stages for r in found)]),
        np.concatenate([np.zeros(0), *(r.sync_s for r in found)]),
        np.concatenate([np.zeros(0), *(r.stage_rows for r in found)]),
        np.concatenate([np.zeros((0, places), dtype=np.int64), *(r.used for r in found)]),
    )


def joined(one: Ranked, other: Ranked, microbatches: int) -> Ranked:
    """The templates of two lists of a batch, the best first."""
    both = _merged(one.batch, [one, other], one.used.shape[1])
    return both.take(np.argsort(both.estimate_s(microbatches), kind="stable"))


def expand(ranked: Ranked, option_of_atom: Ints) -> Iterator[tuple[int, ...]]:
    """Option numbers of each template, stage by stage."""
    for blocks in ranked.blocks.tolist():
        yield tuple(o for atom, s in blocks for o in [int(option_of_atom[atom])] * s)
