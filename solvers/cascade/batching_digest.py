"""The batching problem as numbers: ways to run every kind of micro-batch, and the relaxation."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from arachne_opt.cascade.batching import Batching, BatchingProblem, Segment
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.solvers.cascade.bounds import Pick, pareto_picks, speed_prices
from arachne_opt.solvers.cascade.digest import Digest


class Cut(NamedTuple):
    """Priced device time of the cheapest batching, and the batching."""

    cost: int
    batching: Batching


class BatchingDigest:
    """The catalogue as a digest of its own, with the undominated picks of every kind."""

    def __init__(self, problem: BatchingProblem) -> None:
        self.problem = problem
        # A problem in which every kind of micro-batch is there once; never to be solved.
        self.catalogue = Digest(
            CascadeProblem(
                name=problem.name,
                cluster=problem.cluster,
                cascades=tuple(
                    _named(cascade, number) for number, cascade in enumerate(problem.catalogue)
                ),
            )
        )
        self.prices = speed_prices(self.catalogue)
        self.capacity = sum(
            p * n for p, n in zip(self.prices, self.catalogue.count_of_kind, strict=True)
        )

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """All candidates."""
        return tuple(
            Segment(number, first, size)
            for number, family in enumerate(self.problem.families)
            for first, row in enumerate(family.kinds)
            for size, kind in enumerate(row, 1)
            if kind is not None
        )

    @cached_property
    def kind_of(self) -> tuple[int, ...]:
        """The kind of each candidate."""
        kinds = [self.problem.families[s.family].kind(s.first, s.size) for s in self.segments]
        return tuple(kind for kind in kinds if kind is not None)

    @cached_property
    def candidates(self) -> Digest:
        """A problem in which every candidate is there as a cascade; never to be solved whole."""
        problem = self.problem
        pairs = zip(self.segments, self.kind_of, strict=True)
        return Digest(
            CascadeProblem(
                name=problem.name,
                cluster=problem.cluster,
                cascades=tuple(replace(problem.catalogue[k], id=s.id) for s, k in pairs),
            )
        )

    @cached_property
    def fronts(self) -> tuple[tuple[Pick, ...], ...]:
        """Undominated picks of every kind by rising chain and falling priced device time."""
        by_shape: dict[int, tuple[Pick, ...]] = {}
        rows = zip(self.catalogue.shape_of_cascade, self.catalogue.cascades, strict=True)
        for shape, row in rows:
            if shape not in by_shape:
                by_shape[shape] = tuple(pareto_picks(self.catalogue, row, self.prices))
        return tuple(by_shape[shape] for shape in self.catalogue.shape_of_cascade)

    @cached_property
    def _chains(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(pick.chain_us for pick in front) for front in self.fronts)

    def pick_for(self, kind: int, deadline_us: int) -> int | None:
        """Number of the cheapest pick of a kind whose chain fits a deadline, None if none does."""
        fitting = bisect_right(self._chains[kind], deadline_us)
        return fitting - 1 if fitting else None

    def cheapest_cut(self, deadline_us: int) -> Cut | None:
        """The batching of least priced device time in which every chain fits a deadline.

        Exact, by dynamic programming over the clips of each family:
        least(j) = min over sizes s of least(j - s) + cost(kind(j - s, s), deadline).
        """
        total, rows = 0, []
        costs = [
            None if (p := self.pick_for(kind, deadline_us)) is None else front[p].cost
            for kind, front in enumerate(self.fronts)
        ]
        for family in self.problem.families:
            found = _least(family.kinds, costs)
            if found is None:
                return None
            total += found[0]
            rows.append(found[1])
        return Cut(total, tuple(rows))

    def lower_bound(self) -> int:
        """Least makespan that no batching of the candidates can beat, in µs.

        In a plan of makespan T every chain fits T, and the priced device time of all micro-batches
        is at most T times the priced devices. The least priced device time only falls as T grows,
        so that the least T that passes is found by halving.
        """
        low, high = 0, max(chains[0] for chains in self._chains)
        while not self._passes(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._passes(middle) else (middle, high)
        return high

    def _passes(self, deadline_us: int) -> bool:
        cut = self.cheapest_cut(deadline_us)
        return cut is not None and cut.cost <= deadline_us * self.capacity


def _least(
    kinds: tuple[tuple[int | None, ...], ...], costs: list[int | None]
) -> tuple[int, tuple[int, ...]] | None:
    """Least cost to cut one family into candidates, with the sizes; None where it is impossible."""
    count = len(kinds)
    least: list[int | None] = [0, *[None] * count]
    last = [0] * (count + 1)
    for first, row in enumerate(kinds):
        so_far = least[first]
        if so_far is None:
            continue
        for size, kind in enumerate(row, 1):
            cost = None if kind is None else costs[kind]
            known = least[first + size]
            if cost is not None and (known is None or so_far + cost < known):
                least[first + size], last[first + size] = so_far + cost, size
    total = least[count]
    if total is None:
        return None
    sizes, at = [], count
    while at:
        sizes.append(last[at])
        at -= last[at]
    return total, tuple(sizes[::-1])


def _named(cascade: Cascade, number: int) -> Cascade:
    return replace(cascade, id=str(number))
