"""The template policy: which structural templates to price first on a cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.seeds.cells import MOST_CELLS, features, grid, promising
from arachne_opt.solvers.seeds.network import forward, scaled
from arachne_opt.solvers.seeds.policy_file import PolicyFile
from arachne_opt.solvers.seeds.structures import Structures, structures_of

FIRST = 8  # structures whose columns are priced first
_TRUST = 0.4  # part of a correction that is believed: the network has seen few problems
_DOUBT = 0.5  # a cell that the network holds for impossible counts as so much longer


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Cells of a problem, the most promising structure first.

    Args:
        cells: all that were looked at (shape [c, 3]).
        predicted_s: seconds of an iteration that the policy expects of each.
        order: numbers of structures by their best cell.
        best_cells: for each structure of ``order`` the positions of its cells, best first.
    """

    structures: Structures
    cells: Ints
    predicted_s: Floats
    order: tuple[int, ...]
    best_cells: tuple[tuple[int, ...], ...]


def score(space: Space, policy: PolicyFile | None) -> Scored:
    """Scores the structural templates of a problem; without a policy by their estimates alone."""
    structures = structures_of(space, grid(space))
    cells = promising(structures, MOST_CELLS)
    predicted = structures.estimate_s[tuple(cells.T)]
    if policy is not None and len(cells):
        predicted = predicted * np.exp(_correction(policy, features(space, structures, cells)))
    by_structure: dict[int, list[int]] = {}
    for i in np.argsort(predicted, kind="stable").tolist():
        by_structure.setdefault(int(cells[i, 0]), []).append(i)
    return Scored(
        structures=structures,
        cells=cells,
        predicted_s=predicted,
        order=tuple(by_structure),
        best_cells=tuple(map(tuple, by_structure.values())),
    )


def _correction(policy: PolicyFile, x: Floats) -> Floats:
    """Expected logarithm of the exact seconds over the estimate, longer where none may exist."""
    out = forward(policy.tensors, "cells", scaled(policy.tensors, x)).astype(np.float64)
    impossible = 1 / (1 + np.exp(np.clip(out[:, 1], -30, 30)))
    found: Floats = _TRUST * (np.clip(out[:, 0], -1, 1) + _DOUBT * impossible)
    return found
