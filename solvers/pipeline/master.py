"""The master: the best set of columns, by a chain of integer programs that any back-end solves.

With T the time that the pipelines may take, column c runs at most m_c(T) micro-batches. For a
number n of pipelines, a set of types and limits of both parts of the gradient exchange the program

    maximise Σ_c batch_c m_c z_c     subject to
    Σ_c z_c = n,   Σ_c used_c z_c <= limits,   z_c <= w_c <= m_c z_c,
    Σ_c batch_c w_c >= samples (or = samples),   z, w integer

has a solution only if a plan takes at most T + exchange. T is lowered below the best plan until
none is left, for every n, set of types and pair of limits: then the best plan of the column space
is proven. Columns that keep to neither limit, or run nothing within T, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.workbench import Candidate, Workbench

_BELOW = 1 - 1e-9
_MOST_PIPELINES = 32


@dataclass(frozen=True, slots=True, eq=False)
class SetProblem:
    """One integer program of the chain.

    Args:
        used: devices of each column by limit.
        rounds: most micro-batches of each column.
        count: number of pipelines.
        exact: the samples must be met exactly.
    """

    used: Ints
    limits: Ints
    batch: Ints
    rounds: Ints
    count: int
    samples: int
    exact: bool


@dataclass(frozen=True, slots=True)
class SetAnswer:
    """Copies of each column; None without a set. Not ``proven``: the time was up."""

    copies: tuple[int, ...] | None
    proven: bool


class MasterBackend(Protocol):
    """A solver of integer programs."""

    @property
    def name(self) -> str:
        """Name under which users ask for it."""
        ...

    def best_set(self, problem: SetProblem, time_limit_s: float, seed: int) -> SetAnswer:
        """A set of most samples, or the proof that there is none.

        Raises:
            MissingDependencyError: the back-end is not installed.
        """
        ...


class Master:
    """Solves the chain; candidates are offered as they are found."""

    def __init__(
        self,
        bench: Workbench,
        columns: Sequence[Column],
        backend: MasterBackend,
        best_s: Callable[[], float],
        offer: Callable[[Candidate], bool],
        seed: int = 0,
    ) -> None:
        self.bench = bench
        self.columns = list(columns)
        self.backend = backend
        self.best_s = best_s
        self.offer = offer
        self.seed = seed
        self.used = np.array([c.used for c in self.columns]).reshape(-1, len(bench.limits))
        self.batch = np.array([c.batch for c in self.columns], dtype=np.int64)
        self.inside_s = np.array([bench.exchange.inside_s(c) for c in self.columns])
        self.places = [
            frozenset(bench.space.place_of(b.kind) for o in c.options for b in o.blocks)
            for c in self.columns
        ]

    def run(self, left_s: Callable[[], float]) -> bool:
        """Runs the whole chain; says whether the best plan of the column space is proven."""
        for chosen, across_s, count in self._groups():
            inside_s = self.inside_s[chosen]
            for inside, across in _pairs(inside_s, across_s):
                if inside + across >= self.best_s():
                    break
                within = (inside_s <= inside) & (across_s <= across)
                tight = (inside_s[within] == inside).any() and (across_s[within] == across).any()
                if not tight:
                    continue  # the same columns as under lower limits
                kept = chosen[within]
                if left_s() <= 0 or not self._exhaust(kept, inside + across, count, left_s):
                    return False
        return True

    def _groups(self) -> Iterator[tuple[Ints, Floats, int]]:
        """Columns of a set of types, their exchange across pipelines, a number of pipelines."""
        most = self.bench.problem.options.max_pipelines or _MOST_PIPELINES
        most = min(most, int(self.bench.place_limits.sum()))
        everywhere = sorted(set().union(*self.places))
        for size in range(1, len(everywhere) + 1):
            for places in map(frozenset, combinations(everywhere, size)):
                chosen = np.array([i for i, p in enumerate(self.places) if p <= places], dtype=int)
                kinds = [
                    k for k in self.bench.costs.kinds if self.bench.space.place_of(k) in places
                ]
                for count in range(1, most + 1):
                    if len(chosen):
                        yield chosen, self._across_s(chosen, kinds, count), count

    def _across_s(self, chosen: Ints, kinds: Sequence[ReplicaKind], count: int) -> Floats:
        if count < 2:
            return np.zeros(len(chosen))
        exchange = self.bench.exchange
        return np.array([exchange.across_of(self.columns[c], kinds, count) for c in chosen])

    def _exhaust(
        self, kept: Ints, exchange_s: float, count: int, left_s: Callable[[], float]
    ) -> bool:
        """Better and better sets of some columns until there is none; False if time ran out."""
        while True:
            chosen, problem = self._set_problem(kept, self.best_s() * _BELOW - exchange_s, count)
            if hopeless(problem):
                return True
            answer = self.backend.best_set(problem, left_s(), self.seed)
            if answer.copies is None:
                return answer.proven
            copies = zip(chosen.tolist(), answer.copies, strict=True)
            columns = [self.columns[c] for c, n in copies for _ in range(n)]
            candidate = self.bench.candidate(columns, self.backend.name)
            if candidate is None or not self.offer(candidate):
                return False  # does not pack, or its price is not trusted: nothing is proven

    def _set_problem(self, kept: Ints, seconds: float, count: int) -> tuple[Ints, SetProblem]:
        """The program for a time that pipelines may take, and the columns that take part."""
        wanted, options = self.bench.problem.global_batch, self.bench.problem.options
        rounds = np.array([self.columns[c].microbatches_within(seconds) for c in kept], dtype=int)
        rounds = np.minimum(rounds, -(-wanted // self.batch[kept]))
        chosen, rounds = kept[rounds > 0], rounds[rounds > 0]
        if options.allow_excess:  # else the batches matter, not only the samples
            needed = _needed(self.used[chosen], self.batch[chosen] * rounds)
            chosen, rounds = chosen[needed], rounds[needed]
        problem = SetProblem(
            used=self.used[chosen],
            limits=self.bench.limits,
            batch=self.batch[chosen],
            rounds=rounds,
            count=count,
            samples=wanted,
            exact=not options.allow_excess,
        )
        return chosen, problem


def hopeless(problem: SetProblem) -> bool:
    """Whether a look shows that no set trains the samples.

    Holds a count of columns, and of each limit the most samples per device, against it.
    """
    if not len(problem.batch):
        return True
    samples = problem.batch * problem.rounds
    if problem.count * int(samples.max()) < problem.samples:
        return True
    weights = np.where(problem.limits > 0, 1 / np.maximum(problem.limits, 1), 0.0)
    shares = problem.used @ weights
    total = float((problem.limits > 0).sum())
    return float((samples / np.maximum(shares, 1e-12)).max()) * total < problem.samples


def _needed(used: Ints, samples: Ints) -> Ints:
    """Columns that no other one matches in samples with no more devices."""
    order = np.lexsort((used.sum(axis=1), -samples))
    needed: list[int] = []
    for c in order.tolist():
        if not needed or not (used[needed] <= used[c]).all(axis=1).any():
            needed.append(c)
    return np.array(needed, dtype=np.int64)


def _pairs(inside_s: Floats, across_s: Floats) -> list[tuple[float, float]]:
    """Pairs of limits that some columns just meet, the lowest sum first."""
    pairs = {(float(a), float(b)) for a in set(inside_s) for b in set(across_s)}
    return sorted(pairs, key=lambda pair: (sum(pair), pair))
