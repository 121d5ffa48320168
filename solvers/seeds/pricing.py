"""Exact prices of cells: the layers of their templates by the division that the search uses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.structures import FILLINGS, Structures

# Parts of an estimate that the gradient exchange may take.
_SYNC_PARTS = (0.05, 0.14, 0.3, np.inf)


def templates_of(bench: Workbench, structures: Structures, cells: Ints) -> list[tuple[int, ...]]:
    """Option numbers of each cell, stage by stage, in the tables of its batch."""
    number: dict[int, Ints] = {}
    found = []
    for n, b, f in cells.tolist():
        if b not in number:
            number[b] = bench.option_of_atom(bench.tables(int(structures.batches[b])))
        template: list[int] = []
        stages = structures.stages[n, b, f]
        for k, s, way in zip(structures.blocks[n], stages, FILLINGS[f], strict=True):
            if k >= 0:
                option = int(number[b][structures.kinds.atom[k, b, way]])
                template += [option] * int(s)
        found.append(tuple(template))
    return found


def by_shape(structures: Structures, cells: Ints) -> Iterator[tuple[int, list[int]]]:
    """Batches with the positions of their cells of equally many stages."""
    groups: dict[tuple[int, int], list[int]] = {}
    for i, (n, b, f) in enumerate(cells.tolist()):
        stages = int(structures.stages[n, b, f].sum())
        groups.setdefault((int(structures.batches[b]), stages), []).append(i)
    for (batch, _), mine in groups.items():
        yield batch, mine


def price_cells(bench: Workbench, structures: Structures, cells: Ints) -> Floats:
    """Cautious seconds of an iteration of one pipeline of each cell; infinite where none fits."""
    found = np.full(len(cells), np.inf)
    templates = templates_of(bench, structures, cells)
    n, b, f = cells.T
    estimates = structures.estimate_s[n, b, f]
    samples = bench.problem.global_batch
    for batch, mine in by_shape(structures, cells):
        tables = bench.tables(batch)
        rows = np.array([templates[i] for i in mine])
        fits = (tables.usage[rows].sum(axis=1) <= bench.limits).all(axis=1)
        chosen = np.array(mine)[fits]
        if not len(chosen):
            continue
        search = TemplateSearch(tables, 1, bench.limits)
        rounds = np.full(len(chosen), -(-samples // batch))
        for part in _SYNC_PARTS:
            limit = part * estimates[chosen]
            for i, one in zip(chosen, search.each(rows[fits], rounds, limit), strict=True):
                if one is not None:
                    found[i] = min(found[i], one.total_s)
    return found
