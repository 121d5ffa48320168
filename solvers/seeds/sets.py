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
from arachne_opt.solvers.seeds.kinds import AtomFacts, atom_facts

_MOST_STAGES = 16
_LENGTHS = (0, 1, 2)  # stages beyond the fewest that memory allows
_LEADS = (1, 2, 3, 4, 6)  # stages of the first type of two
_ATOMS_OF_PAIRS = 3  # of each type
_OF_TYPES = 6  # chains of each choice of types that are divided
_PIPELINES = 4  # the exchange across pipelines is taken as that of so many
_EXCHANGE = 0.05  # part of an iteration that it may take
_DOUBT = 1.1  # sets are tried unless they train less than wanted even with so much more


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


def offer_sets(
    bench: Workbench, bound: WorkBound, best: PipelineIncumbent, over: Callable[[], bool]
) -> None:
    """Offers sets of chains, where they may be better than the best plan so far."""
    hoped_s = best.seconds
    if not np.isfinite(hoped_s) or bench.problem.options.max_pipelines == 1:
        return
    chains = list(_chains(bench.space, bound, hoped_s))
    # No set trains more than its best chain does on all devices.
    worth = float(bench.place_limits @ bound.prices)
    most = max((c.value for c in chains), default=0.0) * worth
    if most * _DOUBT < bench.problem.global_batch or over():
        return
    columns = _columns(bench, chains, over)
    if columns and not over():
        Combiner(bench, bound, columns, lambda: best.seconds, best.offer, over).run()
        if best.seconds < hoped_s:
            polish(bench, best, over)


def _chains(space: Space, bound: WorkBound, hoped_s: float) -> Iterator[Chain]:
    """Chains of one type and of two, with the samples that each trains in the time hoped for."""
    facts = atom_facts(space)
    atoms = range(len(facts.atoms))
    place = [space.place_of(facts.atoms[a].kind) for a in atoms]
    alone: dict[int, list[tuple[float, int]]] = {}
    for a in atoms:
        fewest = _fewest(facts, a, space.costs.row_count)
        for more in _LENGTHS if fewest else ():
            one = _chain(space, facts, ((a, fewest + more),), bound, hoped_s)
            if one is not None:
                alone.setdefault(place[a], []).append((one.value, a))
                yield one
    for p, q in permutations(range(len(space.places)), 2):
        for a in _best(alone.get(p, [])):
            for b in _best(alone.get(q, [])):
                for lead in _LEADS:
                    rest = _fewest(facts, b, space.costs.row_count, (a, lead))
                    blocks = ((a, lead), (b, rest))
                    one = _chain(space, facts, blocks, bound, hoped_s) if rest else None
                    if one is not None:
                        yield one


def _best(values: list[tuple[float, int]]) -> list[int]:
    """The atoms of the highest values."""
    return list(dict.fromkeys(a for _, a in sorted(values, reverse=True)))[:_ATOMS_OF_PAIRS]


def _fewest(facts: AtomFacts, a: int, rows: int, lead: tuple[int, int] | None = None) -> int:
    """The fewest stages of an atom that hold all rows behind a lead of another; 0 for none."""
    held = 0.0
    for stages in range(1, _MOST_STAGES + 1):
        held += facts.rows_held(a, stages)
        before = 0.0
        if lead is not None:
            before = sum(facts.rows_held(lead[0], stages + i + 1) for i in range(lead[1]))
        if held + before >= rows:
            return stages
    return 0


def _chain(
    space: Space,
    facts: AtomFacts,
    blocks: tuple[tuple[int, int], ...],
    bound: WorkBound,
    hoped_s: float,
) -> Chain | None:
    """The chain of these blocks, None where micro-batches differ or devices do not suffice."""
    batch = int(facts.microbatch[blocks[0][0]])
    if any(int(facts.microbatch[a]) != batch for a, _ in blocks):
        return None
    taken = np.zeros(len(space.places))
    for a, stages in blocks:
        taken[space.place_of(facts.atoms[a].kind)] += stages * facts.atoms[a].kind.tp
    limits = np.array([space.devices(p) for p in range(len(space.places))])
    total = sum(stages for _, stages in blocks)
    if (taken > limits).any() or total > min(space.costs.row_count, space.in_stages):
        return None
    speed = sum(stages / facts.row_s[a] for a, stages in blocks)
    rows = space.costs.row_count - 2 + facts.head_s[blocks[-1][0]] / facts.row_s[blocks[-1][0]]
    slowest = max(facts.row_s[a] for a, _ in blocks)
    sends = max(facts.send_s[a] for a, _ in blocks) if total > 1 else 0.0
    load = max(rows / speed, slowest) + sends
    rounds = (1 - _EXCHANGE) * hoped_s / load - (total - 1)
    if rounds < 1:
        return None
    places = frozenset(np.flatnonzero(taken).tolist())
    value = rounds * batch / float(taken @ bound.prices)
    return Chain(blocks, batch, places, int(rounds), value)


def _columns(bench: Workbench, chains: list[Chain], over: Callable[[], bool]) -> list[Column]:
    """The best chains of each choice of types with their layers."""
    chosen: dict[frozenset[int], list[Chain]] = {}
    for one in sorted(chains, key=lambda c: -c.value):
        mine = chosen.setdefault(one.places, [])
        if len(mine) < _OF_TYPES:
            mine.append(one)
    groups: dict[tuple[int, int], list[Chain]] = {}
    for one in (c for mine in chosen.values() for c in mine):
        groups.setdefault((one.batch, sum(s for _, s in one.blocks)), []).append(one)
    facts, found = atom_facts(bench.space), dict[object, Column]()
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
