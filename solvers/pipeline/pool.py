"""A pool of columns for parts of the cluster, out of which plans of several pipelines are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.columns import Column, column_of
from arachne_opt.solvers.pipeline.ranking import Ranked, expand
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.workbench import Workbench

# Parts of the time of an iteration that the gradient exchange may take.
_SYNC_PARTS = (0.03, 0.06, 0.1, 0.16, 0.28)
_KEPT = 150  # estimates for each of these parts
_PIPELINES = 4  # the exchange across pipelines is taken as that of so many
_MOST_STAGES = 64  # more than a pipeline has


@dataclass(frozen=True, slots=True)
class _Wish:
    """A template to divide, with its share of the rounds and the most exchange."""

    ranked: Ranked
    rounds: int
    sync_s: float


def column_pool(
    bench: Workbench, bound: WorkBound, best_s: float, over: Callable[[], bool]
) -> list[Column]:
    """Columns that use their devices well if an iteration is to take less than ``best_s``."""
    found: dict[object, Column] = {}
    groups: dict[tuple[int, int], list[_Wish]] = {}
    for wish in _wishes(bench, bound, best_s, over):
        key = (wish.ranked.batch, int(wish.ranked.stages[0]))
        groups.setdefault(key, []).append(wish)
    for (batch, _), wishes in groups.items():
        if over():
            break
        tables = bench.tables(batch, _PIPELINES)
        option_of_atom = bench.option_of_atom(tables)
        templates = [next(expand(w.ranked, option_of_atom)) for w in wishes]
        search = TemplateSearch(tables, 1, bench.limits)
        rounds, sync = np.array([w.rounds for w in wishes]), np.array([w.sync_s for w in wishes])
        for one in search.each(np.array(templates), rounds, sync):
            if one is not None:
                column = column_of(one, tables.options, batch, tables.usage)
                found[column.key] = column
    return list(found.values())


def _wishes(
    bench: Workbench, bound: WorkBound, best_s: float, over: Callable[[], bool]
) -> Iterator[_Wish]:
    """The estimates that train most samples for the devices they take, for each part."""
    parts: list[Ranked] = []
    for batch in bench.part_batches:
        if over():
            return
        ranked = bench.ranking.frontier(batch, bench.place_limits)
        if len(ranked.load_s):
            parts.append(ranked)
    if not parts:
        return
    owner = np.concatenate([np.full(len(r.load_s), i) for i, r in enumerate(parts)])
    row = np.concatenate([np.arange(len(r.load_s)) for r in parts])
    used, stages = (
        np.concatenate([r.used for r in parts]),
        np.concatenate([r.stages for r in parts]),
    )
    batches = np.array([r.batch for r in parts])[owner]
    load = np.concatenate([r.load_s for r in parts])
    across = bench.across_table(2)
    across_row_s = float(across[0, -1]) / bench.costs.row_count
    rows = np.concatenate([r.stage_rows for r in parts])
    exchange = np.concatenate([r.sync_s for r in parts]) + across_row_s * rows
    for part in _SYNC_PARTS:
        rounds = (1 - part) * best_s / load - (stages - 1)
        good = (exchange <= part * best_s) & (rounds >= 1)
        value: Floats = np.where(good, rounds * batches, 0) / (used @ bound.prices)
        for n in _best_by_devices(value, used, stages)[:_KEPT].tolist():
            if value[n] > 0:
                ranked = parts[owner[n]].take(row[[n]])
                yield _Wish(ranked, max(1, int(rounds[n])), part * best_s)


def _best_by_devices(value: Floats, used: Ints, stages: Ints) -> Ints:
    """The best of each number of devices and stages, the best of all first."""
    limits = used.max(axis=0)
    radix = np.cumprod(np.concatenate([[1], limits[:-1] + 1]))
    key = (used @ radix) * _MOST_STAGES + np.minimum(stages, _MOST_STAGES - 1)
    order = np.lexsort((-value, key))
    _, first = np.unique(key[order], return_index=True)
    best = order[first]
    return best[np.argsort(-value[best], kind="stable")]
