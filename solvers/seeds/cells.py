"""Cells: a structure at a batch and a filling of the devices, as numbers that a network reads."""

from __future__ import annotations

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.seeds.structures import FILLINGS, MOST_BLOCKS, Structures

MOST_CELLS = 300
_HOPELESS = 1.7  # cells whose estimate is so much worse than the best one are not looked at
_TINY = 1e-9
_ODD, _FILLED_BY = (1, 3), (1, 2, 3, 4, 5)
_SMALL = 2  # largest micro-batch of batches that fill a type


def grid(space: Space) -> Ints:
    """Batches of the grid: small odd numbers times powers of two, and those that fill a type.

    A type is filled by one to five stages on all its devices.
    """
    rooms = [(space.devices(space.place_of(a.kind)) // a.kind.tp, a) for a in space.atoms]
    most = max((room * a.microbatch for room, a in rooms), default=0)
    most = min(most, space.problem.global_batch)
    found = {o << shift for o in _ODD for shift in range(most.bit_length())}
    found |= {
        room // stages * a.microbatch
        for room, a in rooms
        for stages in _FILLED_BY
        if a.microbatch <= _SMALL and a.kind.ep == 1
    }
    sizes = sorted(b for b in found if 0 < b <= most)
    if not space.problem.options.allow_excess:
        sizes = [b for b in sizes if space.problem.global_batch % b == 0]
    return np.array(sizes, dtype=np.int64)


def promising(structures: Structures, most: int = MOST_CELLS) -> Ints:
    """The cells with the best estimates, best first (shape [c, 3]: structure, batch, filling)."""
    estimate = structures.estimate_s
    flat = estimate.ravel()
    least = flat.min(initial=np.inf)
    if not np.isfinite(least):
        return np.zeros((0, 3), dtype=np.int64)
    good = np.flatnonzero(flat <= _HOPELESS * least)
    order = good[np.argsort(flat[good], kind="stable")][:most]
    return np.stack(np.unravel_index(order, estimate.shape), axis=1).astype(np.int64)


def features(space: Space, structures: Structures, cells: Ints) -> Floats:
    """Numbers without units for each cell (shape [c, features])."""
    n, b, f = cells.T
    kinds = structures.kinds
    estimate = structures.estimate_s[n, b, f]
    blocks = structures.blocks[n]
    held = blocks >= 0
    pick = np.where(held, blocks, 0)
    ways = FILLINGS[f]
    stages = structures.stages[n, b, f]
    total = np.maximum(stages.sum(axis=1), 1)
    parts = {name: values[n, b, f] for name, values in structures.parts.items()}
    tp = np.array([k.tp for k in kinds.kinds])[pick]
    ep = np.array([k.ep for k in kinds.kinds])[pick]
    replicas = np.where(held, kinds.replicas[pick, b[:, None], ways], 1)
    row_s = np.where(held, kinds.row_s[pick, b[:, None], ways], np.inf)
    quickest = row_s.min(axis=1, keepdims=True)
    devices = np.where(held, replicas * tp * stages, 0)
    limits = np.array([space.devices(p) for p in range(len(space.places))])
    own = np.where(held, limits[kinds.place[pick]], 1)
    columns = [
        np.log(estimate / estimate.min(initial=np.inf)),
        np.log(structures.best_s[n] / structures.best_s.min()),
        np.log(parts["rounds"]),
        np.log(total),
        np.log(structures.batches[b]),
        parts["sync"],
        parts["bubble"],
        np.minimum(parts["sends"], 2),
        np.minimum(parts["tight"], 3),
        1 / np.maximum(parts["short"], 1),
        np.minimum(parts["boundary"], 2),
        np.minimum(parts["head"], 2),
        parts["slack"],
        *((f == way).astype(float) for way in range(1, len(FILLINGS))),
        held.sum(axis=1).astype(float),
        devices.sum(axis=1) / limits.sum(),
        np.full(len(cells), np.log(space.costs.row_count)),
        np.full(len(cells), np.log(limits.sum())),
        np.full(len(cells), float(len(limits))),
        space.costs.row_count / total / 10,
    ]
    for i in range(MOST_BLOCKS):
        of = held[:, i]
        columns += [
            of * np.log2(tp[:, i]),
            of * np.log2(ep[:, i]),
            of * np.log2(np.maximum(replicas[:, i], 1)),
            of * np.log2(np.maximum(stages[:, i], 1)),
            of * np.log(np.where(of, row_s[:, i], 1) / np.where(of, quickest[:, 0], 1)),
            of * stages[:, i] / total,
            of * devices[:, i] / own[:, i],
            of / np.maximum(np.where(of, row_s[:, i], 1) / np.where(of, quickest[:, 0], 1), _TINY),
        ]
    return np.stack(columns, axis=1)
