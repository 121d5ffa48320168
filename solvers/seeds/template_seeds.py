"""First plans of pipelines: the columns of the templates that a policy takes for the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.columns import Column, column_of
from arachne_opt.solvers.pipeline.combine import Combiner
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start, climb, column
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.policy_file import PolicyFile
from arachne_opt.solvers.seeds.pricing import by_shape, templates_of
from arachne_opt.solvers.seeds.templates import FIRST, Scored, score

_SOURCE = "learned template"
_CELLS, _OFTEN = 3, 2  # cells that are divided, of so many structures; one of the others
_NEAR = 1.03  # templates this much worse than the best one are still climbed from
_CLIMBED = 3  # batches whose best template is changed step by step
_HOPED = 1.25  # columns beyond this multiple of the best prediction are not divided
# Parts of the cluster that pipelines of a set are made for, and structures of each.
_PARTS = (2, 3, 4, 6, 8, 12, 16, 24)
_OF_TYPES = 3
_SETS_HOPED = 1.02  # sets are looked for where parts promise about as much as the whole
_PIPELINES = 4  # the exchange across pipelines is taken as that of so many

Over = Callable[[], bool]


def offer_seeds(
    bench: Workbench,
    bound: WorkBound,
    best: PipelineIncumbent,
    policy: PolicyFile | None,
    over: Over,
) -> None:
    """Offers plans of the first templates of a policy: of one pipeline, then of several."""
    scored = score(bench.space, policy)
    starts: list[Start] = []
    for start in _starts(bench, scored, over):
        starts.append(start)
        _offer(bench, best, column(start))
    starts.sort(key=lambda s: s.found.total_s)
    # A batch a start: the same template at two batches climbs to much the same.
    of_batch: dict[int, Start] = {}
    for start in starts:
        of_batch.setdefault(start.search.tables.batch, start)
    for start in list(of_batch.values())[:_CLIMBED]:
        if over():
            return
        _offer(bench, best, column(climb(bench, start, bench.limits, over)))
    if bench.problem.options.max_pipelines != 1:
        _offer_sets(bench, bound, best, policy, over)


def _offer(bench: Workbench, best: PipelineIncumbent, one: Column) -> None:
    candidate = bench.candidate((one,), _SOURCE)
    if candidate is not None:
        best.offer(candidate)


def _starts(bench: Workbench, scored: Scored, over: Over) -> Iterator[Start]:
    """The divided templates of the first structures, as far as they are near the best of them."""
    chosen = [i for cells in scored.best_cells[:FIRST] for i in cells[:1]]
    chosen += [i for cells in scored.best_cells[:_OFTEN] for i in cells[1:_CELLS]]
    if not chosen:
        return
    cells = scored.cells[chosen]
    templates = templates_of(bench, scored.structures, cells)
    below_s = _HOPED * float(scored.predicted_s.min())
    for i, (_, b, _) in enumerate(cells.tolist()):
        if over():
            return
        batch = int(scored.structures.batches[b])
        rounds = -(-bench.problem.global_batch // batch)
        search = TemplateSearch(bench.tables(batch), rounds, bench.limits, over)
        one = search.best([templates[i]], below_s)
        if one is not None:
            below_s = min(below_s, _NEAR * one.total_s)
            yield Start(search, one)


def _offer_sets(
    bench: Workbench,
    bound: WorkBound,
    best: PipelineIncumbent,
    policy: PolicyFile | None,
    over: Over,
) -> None:
    """Offers sets of pipelines for parts of the cluster, where parts promise enough."""
    pool: dict[object, Column] = {}
    hoped_s = best.seconds
    for parts in _PARTS:
        if over() or parts > bench.place_limits.sum():
            break
        scored = score(bench.space, policy, parts)
        if len(scored.cells) and scored.predicted_s.min() < _SETS_HOPED * hoped_s:
            pool |= {c.key: c for c in _of_part(bench, scored, parts)}
    if pool and not over():
        columns = list(pool.values())
        Combiner(bench, bound, columns, lambda: best.seconds, best.offer, over).run()


def _of_part(bench: Workbench, scored: Scored, parts: int) -> list[Column]:
    """Columns of the first structures for a part of the devices and samples."""
    # Pipelines of a set complement each other: some for each choice of types.
    kinds, of_types = scored.structures.kinds, dict[frozenset[int], list[int]]()
    for n, cells_of in zip(scored.order, scored.best_cells, strict=True):
        blocks = scored.structures.blocks[n]
        types = frozenset(kinds.place[blocks[blocks >= 0]].tolist())
        of_types.setdefault(types, []).append(cells_of[0])
    chosen = [i for cells_of in of_types.values() for i in cells_of[:_OF_TYPES]]
    cells = scored.cells[chosen]
    templates = templates_of(bench, scored.structures, cells, _PIPELINES)
    samples = -(-bench.problem.global_batch // parts)
    found = []
    for batch, mine in by_shape(scored.structures, cells):
        tables = bench.tables(batch, _PIPELINES)
        search = TemplateSearch(tables, 1, bench.limits)
        rounds = np.full(len(mine), -(-samples // batch))
        rows = np.array([templates[i] for i in mine])
        for one in search.each(rows, rounds, np.full(len(mine), np.inf)):
            if one is not None:
                found.append(column_of(one, tables.options, batch, tables.usage))
    return found
