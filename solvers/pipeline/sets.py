"""Plans of several pipelines: sets by estimate, divided exactly, then improved one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from arachne_opt.costs.pipeline.base import Ints
from arachne_opt.solvers.pipeline.columns import Column, column_of
from arachne_opt.solvers.pipeline.pools import EstimatePool, Pick
from arachne_opt.solvers.pipeline.ranking import expand
from arachne_opt.solvers.pipeline.search import Found, TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start, climb, column, replanned
from arachne_opt.solvers.pipeline.workbench import Candidate, Workbench

_PIPELINES = (2, 3, 4, 5, 6, 8, 12, 16)
_SYNC_PARTS = (0.03, 0.06, 0.1, 0.15, 0.22, 0.3, 0.4)
_SETS = 12  # of each number of pipelines and part of the exchange
_EXACT_SETS = 120
_EQUAL_STAGES = (1, 2, 3, 4, 5)
_ROWS = 8  # rows over which the exchange of one is averaged


@dataclass(frozen=True, slots=True)
class _Set:
    picks: tuple[Pick, ...]
    pipelines: int
    part: float
    estimate_s: float


def several(
    bench: Workbench, best_s: float, over: Callable[[], bool]
) -> Iterator[tuple[Column, ...]]:
    """Sets of columns that together may train the batch in less than ``best_s``."""
    limits = bench.place_limits
    ranked = [bench.ranking.frontier(b, limits) for b in bench.part_batches]
    ranked = [r for r in ranked if len(r.load_s)]
    if not ranked or over():
        return
    pool = EstimatePool(ranked, limits)
    sets = sorted(_sets(bench, pool, best_s), key=lambda s: s.estimate_s)
    columns = _columns(bench, pool, sets[:_EXACT_SETS], best_s)
    for s in sets[:_EXACT_SETS]:
        mine = [columns.get(_key(s, pick)) for pick in s.picks]
        if all(c is not None for c in mine):
            yield tuple(
                c for c, pick in zip(mine, s.picks, strict=True) if c for _ in range(pick.copies)
            )


def improved(
    bench: Workbench, candidate: Candidate, over: Callable[[], bool]
) -> Iterator[tuple[Column, ...]]:
    """The candidate's columns with one of them changed, each at its share of the samples."""
    used = np.sum([c.used for c in candidate.columns], axis=0)
    for i in _distinct(candidate):
        own = candidate.columns[i]
        if over():
            return
        start = _as_start(bench, candidate, i, bench.limits - used + own.used)
        climbed = climb(bench, start, start.search.limits, over)
        if climbed is not start:
            yield _with(candidate, i, column(climbed))


def exchanged(
    bench: Workbench, candidate: Candidate, over: Callable[[], bool]
) -> Iterator[tuple[Column, ...]]:
    """The candidate's columns with one of them planned anew on the devices left for it."""
    used = np.sum([c.used for c in candidate.columns], axis=0)
    for i in _distinct(candidate):
        own = candidate.columns[i]
        samples = candidate.counts[i] * own.batch
        limits = bench.limits - used + own.used
        for new in replanned(bench, samples, limits, len(candidate.columns), over):
            yield _with(candidate, i, new)


def _distinct(candidate: Candidate) -> list[int]:
    """Numbers of columns, equal ones once."""
    return list({c.key: i for i, c in enumerate(candidate.columns)}.values())


def _with(candidate: Candidate, i: int, new: Column) -> tuple[Column, ...]:
    return (*candidate.columns[:i], new, *candidate.columns[i + 1 :])


def _as_start(bench: Workbench, candidate: Candidate, i: int, limits: Ints) -> Start:
    """Column i as it is, to climb from."""
    own, count = candidate.columns[i], candidate.counts[i]
    tables = bench.tables(own.batch, len(candidate.columns))
    template = [tables.options.index(o) for o in own.options]
    sync = float(tables.sync_oab[template, own.cuts[:-1], own.cuts[1:]].max())
    found = Found(
        template=tuple(template),
        cuts=own.cuts,
        load_s=own.load_s,
        fill_s=own.fill_s,
        update_s=own.update_s,
        sync_s=sync,
        total_s=own.seconds(count) + sync,
    )
    return Start(TemplateSearch(tables, count, limits), found)


def _sets(bench: Workbench, pool: EstimatePool, best_s: float) -> Iterator[_Set]:
    most = bench.problem.options.max_pipelines or max(_PIPELINES)
    seen: set[tuple[object, ...]] = set()
    for pipelines in (n for n in _PIPELINES if n <= most):
        row_s = _across_row_s(bench, pipelines)
        for part, stages in product(_SYNC_PARTS, (None, *_EQUAL_STAGES)):
            for picks in pool.sets(pipelines, best_s, row_s, part, _SETS, stages):
                key = tuple(sorted((p.entry, p.copies) for p in picks))
                if key not in seen:
                    seen.add(key)
                    estimate = pool.estimate_s(picks, bench.problem.global_batch, row_s)
                    yield _Set(picks, pipelines, part, estimate)


def _across_row_s(bench: Workbench, pipelines: int) -> float:
    table = bench.across_table(pipelines)
    end = min(_ROWS + 1, bench.costs.row_count)
    return float(table[0, end]) / end


def _key(s: _Set, pick: Pick) -> tuple[int, int, float]:
    return pick.entry, s.pipelines, s.part


def _columns(
    bench: Workbench, pool: EstimatePool, sets: Sequence[_Set], best_s: float
) -> dict[tuple[int, int, float], Column]:
    """The columns of all picks, divided together where they have batch and stages in common."""
    groups: dict[tuple[int, int, int], dict[tuple[int, int, float], int]] = {}
    for s in sets:
        for pick in s.picks:
            batch, stages = int(pool.batch[pick.entry]), int(pool.stages[pick.entry])
            group = groups.setdefault((batch, s.pipelines, stages), {})
            group[_key(s, pick)] = pick.microbatches
    found: dict[tuple[int, int, float], Column] = {}
    for (batch, pipelines, _), group in groups.items():
        tables = bench.tables(batch, pipelines)
        option_of_atom = bench.option_of_atom(tables)
        keys = list(group)
        templates = [next(expand(pool.ranked_entry(k[0]), option_of_atom)) for k in keys]
        search = TemplateSearch(tables, 1, bench.limits)
        sync = np.array([part * best_s for _, _, part in keys])
        divided = search.each(np.array(templates), np.array([group[k] for k in keys]), sync)
        for key, one in zip(keys, divided, strict=True):
            if one is not None:
                found[key] = column_of(one, tables.options, batch, tables.usage)
    return found
