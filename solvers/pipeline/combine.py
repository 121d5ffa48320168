"""Plans of several pipelines out of a pool of columns, and changes of one of their pipelines.

For a time T of the pipelines every column runs a known number of micro-batches; a set of columns
beats the best plan if it fits the devices and trains the global batch within T = best - exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.knapsack import Sack, fill, sizes
from arachne_opt.solvers.pipeline.search import Found, TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start, climb, column
from arachne_opt.solvers.pipeline.workbench import Candidate, Workbench

_COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
_MOST_CELLS = 8_000
_MOST_EXCHANGE = 0.3  # of the time of an iteration
_EXCHANGE_STEP = 0.004  # limits of the exchange that are told apart
_REPEATS = 8

Offer = Callable[[Candidate], bool]


class Combiner:
    """Tries sets of columns; every candidate is offered, and the best time asked for anew."""

    def __init__(
        self,
        bench: Workbench,
        bound: WorkBound,
        columns: Sequence[Column],
        best_s: Callable[[], float],
        offer: Offer,
        over: Callable[[], bool],
    ) -> None:
        self.bench = bench
        self.columns = list(columns)
        self.best_s = best_s
        self.offer = offer
        self.over = over
        places = bench.space.device_rows()
        used = np.array([c.used[places] for c in self.columns]).reshape(-1, len(places))
        self.used, self.cells = sizes(used, bench.place_limits, _MOST_CELLS)
        self.worth = used @ bound.prices
        self.all_worth = float(bench.place_limits @ bound.prices)
        self.batch = np.array([c.batch for c in self.columns])
        self.load_s = np.array([c.load_s for c in self.columns])
        self.first_s = np.array([c.first_s for c in self.columns])
        self.inside_s = np.array([bench.exchange.inside_s(c) for c in self.columns])
        self.stages = np.array([len(c.options) for c in self.columns])

    def run(self, *, most_first: bool = False) -> None:
        """Sets of ever more columns, or of ever fewer; of any stages, then of equally many stages.

        The published price looks at the longest pipelines only, so that plans of equally long ones
        are those that it sees in full.
        """
        most = min(self.bench.problem.options.max_pipelines or max(_COUNTS), self._devices())
        for count in sorted({min(n, most) for n in _COUNTS}, reverse=most_first):
            if count < 2:
                continue
            exchange = self.inside_s + self._across_s(count)
            for stages in (None, *sorted(set(self.stages.tolist()))):
                of_stages = np.ones(len(self.columns), dtype=bool)
                if stages is not None:
                    of_stages = self.stages == stages
                for limit in self._limits(exchange[of_stages]):
                    if self.over():
                        return
                    self._improve(np.flatnonzero(of_stages & (exchange <= limit)), limit, count)

    def _improve(self, chosen: Ints, exchange_s: float, count: int) -> None:
        """Better and better sets under a limit of the exchange, until there is none."""
        wanted = self.bench.problem.global_batch
        for _ in range(_REPEATS):
            samples = self._samples(chosen, self.best_s() - exchange_s)
            # No set trains more samples than the most per worth of devices allows.
            per_worth = (samples / self.worth[chosen]).max(initial=0)
            if per_worth * self.all_worth < wanted:
                return
            better = False
            sack = Sack(self.used[chosen], samples)
            for picked in fill(sack, self.cells, wanted, count, self.over):
                columns = [self.columns[chosen[c]] for c in picked]
                candidate = self.bench.candidate(columns, "several pipelines")
                better |= candidate is not None and self.offer(candidate)
            if not better or self.over():
                return

    def _samples(self, chosen: Ints, seconds: float) -> Ints:
        rounds = np.floor((seconds - self.first_s[chosen]) / self.load_s[chosen] * (1 + 1e-12)) + 1
        found: Ints = (np.maximum(rounds, 0) * self.batch[chosen]).astype(np.int64)
        return found

    def _across_s(self, count: int) -> Floats:
        table = self.bench.across_table(count)
        return np.array(
            [
                max(table[a, b] for a, b in zip(c.cuts, c.cuts[1:], strict=False))
                for c in self.columns
            ]
        )

    def _limits(self, exchange: Floats) -> list[float]:
        """Limits of the exchange worth trying: those that some column just meets."""
        best = self.best_s()
        step = best * _EXCHANGE_STEP
        some = np.sort(exchange[exchange <= _MOST_EXCHANGE * best])
        by_step = {int(np.ceil(e / step)): e for e in some.tolist()}  # the last of each step
        return sorted(by_step.values())

    def _devices(self) -> int:
        return int(self.bench.place_limits.sum())


def polish(bench: Workbench, best: PipelineIncumbent, over: Callable[[], bool]) -> None:
    """Changes one pipeline after the other while that helps."""
    again = True
    while again and not over():
        again = False
        candidate = best.kept.candidate if best.kept else None
        if candidate is None or len(candidate.columns) < 2:
            return
        for columns in improved(bench, candidate, over):
            changed = bench.candidate(columns, "one pipeline of several")
            if changed is not None and best.offer(changed):
                again = True
                break


def improved(
    bench: Workbench, candidate: Candidate, over: Callable[[], bool]
) -> Iterator[tuple[Column, ...]]:
    """The candidate's columns with one of them changed, each at its share of the samples."""
    used = np.sum([c.used for c in candidate.columns], axis=0)
    for i in {c.key: i for i, c in enumerate(candidate.columns)}.values():
        own = candidate.columns[i]
        if over():
            return
        start = _as_start(bench, candidate, i, bench.limits - used + own.used, over)
        climbed = climb(bench, start, start.search.limits, over)
        if climbed is not start:
            yield (*candidate.columns[:i], column(climbed), *candidate.columns[i + 1 :])


def _as_start(
    bench: Workbench, candidate: Candidate, i: int, limits: Ints, over: Callable[[], bool]
) -> Start:
    """Column i as it is, to climb from."""
    own, count = candidate.columns[i], candidate.counts[i]
    tables = bench.tables(own.batch, len(candidate.columns))
    template = [tables.options.index(o) for o in own.options]
    tables.fill(np.array(template))
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
    return Start(TemplateSearch(tables, count, limits, over), found)
