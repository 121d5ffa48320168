"""Plans of one pipeline: block templates first, then one change after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from arachne_opt.costs.pipeline.base import Ints
from arachne_opt.solvers.pipeline.columns import Column, column_of
from arachne_opt.solvers.pipeline.neighbours import neighbours
from arachne_opt.solvers.pipeline.ranking import MOST_BLOCKS, Ranked, expand, joined
from arachne_opt.solvers.pipeline.search import Found, TemplateSearch
from arachne_opt.solvers.pipeline.workbench import Workbench

_TEMPLATES = 60  # of each batch
_FEWER = 20  # of two types, where three are looked at too
_BATCHES = 10  # that get exact divisions
_LEAST_BATCHES = 5
_CLIMBED = 5  # that are climbed from
_WORSE = 1.2  # a batch whose estimate is that much worse than the best plan is left out
_HOPED = 1.4  # first only plans within this multiple of the estimate are looked for
_TRIPLE_BATCHES = 12
_ALL_TRIPLES = 10
_ALL_PAIRS = 40  # up to so many options all templates of one and two stages are tried


@dataclass(frozen=True, slots=True)
class Start:
    """A batch with its best template so far."""

    search: TemplateSearch
    found: Found


def singles(
    bench: Workbench, over: Callable[[], bool], ranked_enough: Callable[[], bool]
) -> Iterator[Column]:
    """Columns that train the whole batch alone, the better the later of each batch.

    Where memory can be saved by spreading experts or rebuilding activations, plain templates are
    looked at first, so that what else is allowed never displaces them. ``ranked_enough`` ends the
    estimates, so that time remains for exact divisions.
    """
    plain = bench.ranking.plain
    any_yet = False
    for only_plain in (True, False) if plain.any() and not plain.all() else (False,):
        if any_yet and over():
            return
        starts: list[Start] = []

        def late(starts: list[Start] = starts) -> bool:  # a first plan is worth a delay
            return bool(starts) and over()

        best = np.inf
        for estimate, ranked, rounds in _ranked_batches(bench, ranked_enough, plain=only_plain):
            hopeless = estimate > _WORSE * best and len(starts) >= _LEAST_BATCHES
            if hopeless or len(starts) >= _BATCHES or late():
                break
            start = _start(bench, ranked, rounds, late)
            if start is not None:
                starts.append(start)
                best = min(best, start.found.total_s)
                any_yet = True
                yield column(start)
        starts.sort(key=lambda s: s.found.total_s)
        yield from _climbed(bench, starts[:_CLIMBED], over)


def _climbed(bench: Workbench, starts: list[Start], over: Callable[[], bool]) -> Iterator[Column]:
    for start in starts:
        if over():
            return
        better = climb(bench, start, bench.limits, over)
        if better is not start:
            yield column(better)


def column(start: Start) -> Column:
    """The column of a template and its layers."""
    tables = start.search.tables
    return column_of(start.found, tables.options, tables.batch, tables.usage)


def climb(bench: Workbench, start: Start, limits: Ints, over: Callable[[], bool]) -> Start:
    """Takes the best change of the template again and again until none is better."""
    search, found = start.search, start.found
    while not over():
        near = neighbours(found.template, search.tables.usage, limits, bench.space.in_stages)
        better = search.best(near, found.total_s)
        if better is None:
            break
        found = better
    return start if found is start.found else Start(search, found)


def _start(bench: Workbench, ranked: Ranked, rounds: int, over: Callable[[], bool]) -> Start | None:
    tables = bench.tables(ranked.batch)
    search = TemplateSearch(tables, rounds, bench.limits, over)
    templates = list(expand(ranked, bench.option_of_atom(tables)))
    count = range(len(tables.options))
    templates += [(o,) for o in count]
    if len(tables.options) <= _ALL_PAIRS and bench.space.in_stages > 1:
        templates += list(product(count, count))
    if len(tables.options) <= _ALL_TRIPLES and bench.space.in_stages > 2:
        templates += list(product(count, count, count))
    hoped_s = _HOPED * float(ranked.estimate_s(rounds)[0])
    found = search.best(templates, hoped_s)
    if found is None:  # the estimate was too hopeful
        found = TemplateSearch(tables, rounds, bench.limits, over).best(templates, np.inf)
    return None if found is None else Start(search, found)


def _ranked_batches(
    bench: Workbench, over: Callable[[], bool], *, plain: bool
) -> list[tuple[float, Ranked, int]]:
    """Batches by the estimate of their best block template, the best first."""
    samples, ranking = bench.problem.global_batch, bench.ranking
    many = len(bench.place_limits) >= MOST_BLOCKS
    batches = ranking.batches(samples)
    if many:
        usual = {*bench.usual_batches, *ranking.full_batches()}
        batches = [b for b in batches if b in usual]
    found: list[tuple[float, Ranked, int]] = []
    for batch in batches:
        if over() and found:
            break
        rounds = -(-samples // batch)
        ranked = ranking.rank(batch, rounds, bench.place_limits, _TEMPLATES, 2, plain=plain)
        if len(ranked.load_s):
            found.append((float(ranked.estimate_s(rounds)[0]), ranked, rounds))
    found.sort(key=lambda entry: (entry[0], entry[1].batch))
    if not many:
        return found
    # Three types at once only for the batches that look good with two.
    found = found[:_TRIPLE_BATCHES]
    for n, (_, ranked, rounds) in enumerate(found):
        if over():
            break
        more = ranking.rank(ranked.batch, rounds, bench.place_limits, _TEMPLATES, plain=plain)
        # Estimates of three types are the more hopeful: they must not displace those of two.
        found[n] = (
            float(more.estimate_s(rounds)[0]),
            joined(ranked.first(_FEWER), more, rounds),
            rounds,
        )
    return sorted(found, key=lambda entry: (entry[0], entry[1].batch))
