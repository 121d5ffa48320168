"""What each kind of replica offers at each batch of a grid, in the ways that devices are filled.

Legend of arrays: a atom (kind and micro-batch), k kind, b batch of the grid, v way of filling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.pipeline.options import Atom, Space, node_width
from arachne_opt.solvers.pipeline.ranking import row_exchange_s, row_send_s

# Ways to fill the devices of a kind: with the largest micro-batches of about the highest rate of
# rows, with the smallest of these, and with half of the stages of the first.
_WAYS = 3
_ABOUT = 0.96
_SHALLOW, _DEEP = 1, 6  # micro-batches in flight at which memory is looked at
_NEXT_TO_NONE = 0.25  # rows, where memory holds none
_USUAL_SAMPLES = 4
TINY = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Facts of all kinds; ``stages`` is 0 where a batch does not go with a kind.

    Args:
        place: number of the type and zone of each kind.
        atom: number of the atom of the space that each way takes (shape [k, b, v], as all below).
        replicas: of a stage.
        stages: as many as the devices make.
        row_s: an inner row of a micro-batch; the head beyond such a row is ``head_s``.
        send_s: boundaries inside of a block.
        memory: rows that memory holds are 1 / (memory[0] + memory[1] · micro-batches in flight).
        exchange_row_s: gradient exchange of a row among many replicas, by kind.
        sample_send_s: a sample there and back between two places.
        facts: those of the atoms.
    """

    kinds: tuple[ReplicaKind, ...]
    place: Ints
    atom: Ints
    replicas: Ints
    stages: Ints
    row_s: Floats
    head_s: Floats
    send_s: Floats
    memory: tuple[Floats, Floats]
    exchange_row_s: Floats
    sample_send_s: Floats
    facts: AtomFacts

    @property
    def rate(self) -> Floats:
        """Rows of samples per second that each kind does at its best batch, alone."""
        samples = self.stages / self.row_s
        found: Floats = samples.max(axis=(1, 2), initial=0)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class AtomFacts:
    """Facts of the atoms of a space without recomputation, one entry each."""

    atoms: tuple[Atom, ...]
    kind: Ints
    microbatch: Ints
    row_s: Floats
    head_s: Floats
    send_s: Floats
    first: Floats
    second: Floats


def kinds_of(space: Space, batches: Ints) -> Kinds:
    """The facts of the kinds of a space, without recomputation."""
    chosen = np.array([a for a, atom in enumerate(space.atoms) if not atom.recompute], dtype=int)
    atoms = atom_facts(space)
    kinds = tuple(dict.fromkeys(atom.kind for atom in atoms.atoms))
    room = np.array([_room(space, kind) for kind in kinds], dtype=np.int64)
    tp, ep = (np.array([getattr(k, name) for k in kinds], dtype=np.int64) for name in ("tp", "ep"))
    count = batches // atoms.microbatch[:, None]
    fits = (batches % atoms.microbatch[:, None] == 0) & (count > 0)
    fits &= (count % ep[atoms.kind][:, None] == 0) & (atoms.first < 1 / TINY)[:, None]
    devices = np.maximum(1, count * tp[atoms.kind][:, None])
    stages = np.where(fits, room[atoms.kind][:, None] // devices, 0).clip(max=space.in_stages)
    rate = stages / atoms.row_s[:, None]
    pick = _picks(atoms.kind, len(kinds), rate)
    halves = np.ones(_WAYS, dtype=np.int64)
    halves[-1] = 2
    column = np.arange(len(batches))[:, None]
    most = stages[pick, column]
    return Kinds(
        kinds=kinds,
        place=np.array([space.place_of(kind) for kind in kinds], dtype=np.int64),
        atom=chosen[pick],
        replicas=np.maximum(1, count[pick, column]),
        stages=np.where(most > 0, np.maximum(1, most // halves), 0),
        row_s=atoms.row_s[pick],
        head_s=atoms.head_s[pick],
        send_s=atoms.send_s[pick],
        memory=(atoms.first[pick], atoms.second[pick]),
        exchange_row_s=np.array([row_exchange_s(space, kind) for kind in kinds]),
        sample_send_s=_sample_sends(space),
        facts=atoms,
    )


def _picks(kind: Ints, kinds: int, rate: Floats) -> Ints:
    """Atoms of each kind at each batch by way (shape [k, b, v]); micro-batches rise in a kind."""
    found = np.zeros((kinds, rate.shape[1], _WAYS), dtype=np.int64)
    for k in range(kinds):
        mine = np.flatnonzero(kind == k)
        good = rate[mine] >= _ABOUT * rate[mine].max(axis=0, keepdims=True)
        found[k, :, 1] = mine[good.argmax(axis=0)]
        found[k, :, 0] = found[k, :, 2] = mine[len(mine) - 1 - good[::-1].argmax(axis=0)]
    return found


def atom_facts(space: Space) -> AtomFacts:
    """The facts of all atoms that keep their activations."""
    rows, costs = space.costs.row_count, space.costs
    atoms = [atom for atom in space.atoms if not atom.recompute]
    number = {kind: k for k, kind in enumerate(dict.fromkeys(atom.kind for atom in atoms))}
    prefixes = np.array([costs.work_prefix_s(a.kind, a.microbatch) for a in atoms])
    inner = (prefixes[:, -2] - prefixes[:, 1]) / max(1, rows - 2)
    shallow, deep = (
        np.array([_rows_held(space, a, flight) for a in atoms], dtype=float)
        for flight in (_SHALLOW, _DEEP)
    )
    # Rows that memory holds fall with the micro-batches in flight.
    least, most = 1 / np.maximum(shallow, TINY), 1 / np.maximum(deep, _NEXT_TO_NONE)
    slope = np.maximum(0, most - least) / (_DEEP - _SHALLOW)
    return AtomFacts(
        atoms=tuple(atoms),
        kind=np.array([number[a.kind] for a in atoms], dtype=np.int64),
        microbatch=np.array([a.microbatch for a in atoms], dtype=np.int64),
        row_s=np.maximum(inner, TINY),
        head_s=np.maximum(prefixes[:, -1] - prefixes[:, -2], 0),
        send_s=np.array([row_send_s(space, a.kind, a.microbatch) for a in atoms]),
        first=np.where(shallow > 0, np.maximum(least - slope, TINY), 1 / TINY),
        second=np.where(shallow > 0, slope, 0),
    )


def _rows_held(space: Space, atom: Atom, in_flight: int) -> int:
    middle = min(1, space.costs.row_count - 1)
    ends = space.costs.furthest_end(atom.kind, atom.microbatch, in_flight)
    return int(ends[middle]) - middle


def _room(space: Space, kind: ReplicaKind) -> int:
    name, zone = kind.device_type, kind.zone
    nodes = (n for n in space.problem.nodes_of_type[name] if n.zone == zone)
    return sum(n.device_count // node_width(kind) * node_width(kind) for n in nodes)


def _sample_sends(space: Space) -> Floats:
    middle = space.costs.row_count // 2
    singles = [ReplicaKind(name, zone=zone) for name, zone in space.places]
    found = np.zeros((len(singles), len(singles)))
    for i, a in enumerate(singles):
        for j, b in enumerate(singles):
            forward, backward = space.costs.cut_s([a], [b], _USUAL_SAMPLES)
            found[i, j] = (forward[middle] + backward[middle]) / _USUAL_SAMPLES
    return found
