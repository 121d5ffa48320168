"""Sets of short pipelines: chains of single replicas, as many as the devices make.

Where a type has few devices, or its devices do not come out even, several short pipelines are
often better than one. A chain has one replica a stage; it is judged by the samples that it trains
for the devices it takes, and the search's own combination of columns picks the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from arachne_opt.costs.pipeline.base import Floats
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.columns import Column, column_of
from arachne_opt.solvers.pipeline.combine import Combiner, polish
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.kinds import AtomFacts

_MOST_STAGES = 16
_LENGTHS = 8  # chains of the same atoms, of the best lengths
_SPLIT_ROW, _ROUNDED = 0.3, 0.01
_ATOMS_OF_PAIRS = 3  # of each type
_OF_TYPES = 20  # chains of each choice of types that are divided
_PIPELINES = 4  # the exchange across pipelines is taken as that of so many
_EXCHANGE = 0.05  # part of an iteration that it may take


@dataclass(frozen=True, slots=True)
class Chain:
    """Stages of single replicas.

    Args:
        blocks: atom and stages of each block.
        batch: samples of a micro-batch.
        places: where it takes devices.
        rounds: micro-batches in the time hoped for.
        value: samples in that time for the worth of its devices.
    """

    blocks: tuple[tuple[int, int], ...]
    batch: int
    places: frozenset[int]
    rounds: int
    value: float


def chains_of(
    bench: Workbench, bound: WorkBound, facts: AtomFacts, hoped_s: float
) -> tuple[list[Chain], float]:
    """Chains, and the part of the samples that sets of them may train in the time hoped for.

    No set trains more than its best chain does on all devices.
    """
    if not np.isfinite(hoped_s) or bench.problem.options.max_pipelines == 1:
        return [], 0.0
    chains = list(_chains(bench.space, bound, facts, hoped_s))
    worth = float(bench.place_limits @ bound.prices)
    most = max((c.value for c in chains), default=0.0) * worth
    return chains, most / bench.problem.global_batch


def offer_sets(
    bench: Workbench,
    bound: WorkBound,
    best: PipelineIncumbent,
    facts: AtomFacts,
    chains: list[Chain],
    over: Callable[[], bool],
) -> None:
    """Offers sets of chains, and the best of them changed one pipeline after the other."""
    before_s = best.seconds
    columns = _columns(bench, facts, chains, over)
    if columns and not over():
        sets = Combiner(bench, bound, columns, lambda: best.seconds, best.offer, over)
        sets.run(most_first=True)
        if best.seconds < before_s:
            polish(bench, best, over)


def _chains(space: Space, bound: WorkBound, facts: AtomFacts, hoped_s: float) -> Iterator[Chain]:
    """Chains of one type and of two, with the samples that each trains in the time hoped for."""
    judge = _Judge(space, facts, bound, hoped_s)
    place = [space.place_of(atom.kind) for atom in facts.atoms]
    alone: dict[int, list[tuple[float, int]]] = {}
    for a in range(len(facts.atoms)):
        for one in judge.chains(a, None):
            alone.setdefault(place[a], []).append((one.value, a))
            yield one
    for p, q in permutations(range(len(space.places)), 2):
        for a in _best(alone.get(p, [])):
            for b in _best(alone.get(q, [])):
                if facts.microbatch[a] == facts.microbatch[b]:
                    yield from judge.chains(a, b)


def _best(values: list[tuple[float, int]]) -> list[int]:
    """The atoms of the highest values."""
    return list(dict.fromkeys(a for _, a in sorted(values, reverse=True)))[:_ATOMS_OF_PAIRS]


class _Judge:
    """Estimates chains of all lengths of two atoms at once: arrays [stages of a, stages of b]."""

    def __init__(self, space: Space, facts: AtomFacts, bound: WorkBound, hoped_s: float) -> None:
        self.space = space
        self.facts = facts
        self.hoped_s = hoped_s
        self.inner = space.costs.row_count - 2
        self.most = min(_MOST_STAGES, space.costs.row_count, space.in_stages)
        tp = np.array([atom.kind.tp for atom in facts.atoms])
        self.place = [space.place_of(atom.kind) for atom in facts.atoms]
        self.worth = tp * bound.prices[self.place]
        self.longest = np.array([space.devices(p) for p in self.place]) // tp
        flight = np.arange(1, 2 * self.most + 1)
        rows = 1 / (facts.first[:, None] + facts.second[:, None] * flight)
        held = np.floor(rows + _ROUNDED).cumsum(axis=1)
        self.held = np.concatenate([np.zeros((len(tp), 1)), held], axis=1)

    def chains(self, a: int, b: int | None) -> Iterator[Chain]:
        """The best chains of an atom alone, or in front of another."""
        facts, last = self.facts, a if b is None else b
        sa = np.arange(1, self.most + 1)[:, None]
        sb = np.zeros((1, 1), dtype=np.int64) if b is None else np.arange(1, self.most + 1)[None]
        total = sa + sb
        rows = self.inner + facts.head_s[last] / facts.row_s[last]
        speed = sa / facts.row_s[a] + sb / facts.row_s[last]
        quickest = min(facts.row_s[a], facts.row_s[last])
        load = rows / speed + np.where(total > 1, _SPLIT_ROW * quickest, 0)
        load = np.maximum(load, facts.row_s[last] + facts.head_s[last])
        load = load + np.where(total > 1, max(facts.send_s[a], facts.send_s[last]), 0)
        held = self.held[a][np.minimum(total, 2 * self.most)] - self.held[a][sb]
        if b is not None:
            held = held + self.held[b][sb]
        rounds = np.floor((1 - _EXCHANGE) * self.hoped_s / load - (total - 1))
        fits = (held >= self.inner) & (rounds >= 1) & (total <= self.most)
        fits &= (sa <= self.longest[a]) & (sb <= self.longest[last])
        batch = int(facts.microbatch[a])
        value = np.where(fits, rounds * batch / (sa * self.worth[a] + sb * self.worth[last]), 0)
        for n in np.argsort(-value, axis=None)[:_LENGTHS]:
            i, j = np.unravel_index(int(n), value.shape)
            if value[i, j] > 0:
                blocks = ((a, int(sa[i, 0])),) + (((b, int(sb[0, j])),) if b is not None else ())
                places = frozenset(self.place[atom] for atom, _ in blocks)
                yield Chain(blocks, batch, places, int(rounds[i, j]), float(value[i, j]))


def _columns(
    bench: Workbench, facts: AtomFacts, chains: list[Chain], over: Callable[[], bool]
) -> list[Column]:
    """The best chains of each choice of types with their layers."""
    chosen: dict[frozenset[int], list[Chain]] = {}
    for one in sorted(chains, key=lambda c: -c.value):
        mine = chosen.setdefault(one.places, [])
        if len(mine) < _OF_TYPES:
            mine.append(one)
    groups: dict[tuple[int, int], list[Chain]] = {}
    for one in (c for mine in chosen.values() for c in mine):
        groups.setdefault((one.batch, sum(s for _, s in one.blocks)), []).append(one)
    found: dict[object, Column] = {}
    number = {atom: i for i, atom in enumerate(bench.space.atoms)}
    for (batch, _), mine in groups.items():
        if over():
            break
        tables = bench.tables(batch, _PIPELINES)
        option = bench.option_of_atom(tables)
        rows = [
            [int(option[number[facts.atoms[a]]]) for a, s in c.blocks for _ in range(s)]
            for c in mine
        ]
        rounds = np.array([c.rounds for c in mine])
        free: Floats = np.full(len(mine), np.inf)
        search = TemplateSearch(tables, 1, bench.limits)
        for divided in search.each(np.array(rows), rounds, free):
            if divided is not None:
                made = column_of(divided, tables.options, batch, tables.usage)
                found[made.key] = made
    return list(found.values())
