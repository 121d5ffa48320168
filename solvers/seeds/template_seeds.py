"""First plans of pipelines: the columns of the templates that a policy takes for the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start, column
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.climbs import Patience, quick_climb
from arachne_opt.solvers.seeds.mixes import Mix, Mixes
from arachne_opt.solvers.seeds.orders import Orders
from arachne_opt.solvers.seeds.policy_file import PolicyFile
from arachne_opt.solvers.seeds.pricing import templates_of
from arachne_opt.solvers.seeds.sets import chains_of, offer_sets
from arachne_opt.solvers.seeds.templates import Scored, score

_SOURCE = "learned template"
_FIRST, _CELLS = 4, 3  # structures that are divided at once, and cells of the first of them
_NEAR = 1.05  # templates this much worse than the best one are still climbed from
_HOPED = 1.25  # columns beyond this multiple of the best prediction are not divided
_BATCHES = 8  # whose stages are mixed
_MIXES, _OF_BATCH, _ALIKE = 16, 4, 2  # that are divided, of a batch, of equal stages
_ROUGH = 80  # that get better estimates
_EXACT = 6  # divisions of the mixes of a batch
_CLIMBED = 4  # batches whose best template is changed step by step
# Sets are tried first where they may train so much more than the best plan, and not at all where
# they may train less than the other part.
_BETTER, _WORSE = 1.1, 0.9
_QUESTIONS = 400  # of the search among sets

Over = Callable[[], bool]


def offer_seeds(
    bench: Workbench,
    bound: WorkBound,
    best: PipelineIncumbent,
    policy: PolicyFile | None,
    over: Over,
) -> None:
    """Offers columns of the first templates, mixes of stages, climbs from these, and sets."""
    scored = score(bench.space, policy)
    starts: list[Start] = []
    for found in (_starts, _mixed):
        for start in found(bench, scored, best, over):
            starts.append(start)
            _offer(bench, best, start)
    facts = scored.structures.kinds.facts
    chains, part = chains_of(bench, bound, facts, best.seconds)
    if part >= _BETTER and not over():
        offer_sets(bench, bound, best, facts, chains, Patience(_QUESTIONS, over))
    for start in _summits(starts):
        for near in quick_climb(bench, start, over):
            _offer(bench, best, near)
    if _WORSE <= part < _BETTER and not over():
        chains, part = chains_of(bench, bound, facts, best.seconds)
        if part >= _WORSE:
            offer_sets(bench, bound, best, facts, chains, Patience(_QUESTIONS, over))


def _offer(bench: Workbench, best: PipelineIncumbent, start: Start) -> None:
    candidate = bench.candidate((column(start),), _SOURCE)
    if candidate is not None:
        best.offer(candidate)


def _summits(starts: list[Start]) -> list[Start]:
    """The best start of each of the best batches: two of one batch climb to much the same."""
    of_batch: dict[int, Start] = {}
    for start in sorted(starts, key=lambda s: s.found.total_s):
        of_batch.setdefault(start.search.tables.batch, start)
    return list(of_batch.values())[:_CLIMBED]


def _starts(
    bench: Workbench, scored: Scored, best: PipelineIncumbent, over: Over
) -> Iterator[Start]:
    """The divided templates of the first structures, as far as they are near the best of them."""
    chosen = [i for cells in scored.best_cells[:_FIRST] for i in cells[:1]]
    chosen += [i for cells in scored.best_cells[:1] for i in cells[1:_CELLS]]
    if not chosen:
        return
    cells = scored.cells[chosen]
    templates = templates_of(bench, scored.structures, cells)
    below_s = _HOPED * float(scored.predicted_s.min())
    for i, (_, b, _) in enumerate(cells.tolist()):
        if over():
            return
        search = _search(bench, int(scored.structures.batches[b]), over)
        one = search.best([templates[i]], below_s)
        if one is not None:
            below_s = min(below_s, _NEAR * one.total_s)
            yield Start(search, one)


def _mixed(
    bench: Workbench, scored: Scored, best: PipelineIncumbent, over: Over
) -> Iterator[Start]:
    """The divided templates of the best mixes, the best of each batch."""
    kinds = scored.structures.kinds
    mixes = Mixes(bench.space, kinds)
    rough: list[Mix] = []
    for batch in _batches(scored):
        if over():
            return
        rough += mixes.of_batch(batch, best.seconds)
    rough = sorted(rough, key=lambda m: m.estimate_s)[:_ROUGH]
    number = {atom: a for a, atom in enumerate(bench.space.atoms)}
    of_facts = np.array([number[atom] for atom in kinds.facts.atoms])
    below_s = np.inf
    for batch, chosen in _chosen(Orders(bench.space, kinds).of(rough)).items():
        if over():
            return
        search = _search(bench, batch, over, exact=_EXACT)
        option = bench.option_of_atom(search.tables)[of_facts]
        one = search.best([tuple(option[list(m.atoms)].tolist()) for m in chosen], below_s)
        if one is not None:
            below_s = min(below_s, _NEAR * one.total_s)
            yield Start(search, one)


def _batches(scored: Scored) -> list[int]:
    """Batches whose stages are mixed: those of the best cells, then any."""
    order = scored.cells[np.argsort(scored.predicted_s, kind="stable"), 1].tolist()
    batches = scored.structures.batches.tolist()
    return [batches[b] for b in dict.fromkeys((*order, *range(len(batches))))][:_BATCHES]


def _chosen(ordered: list[Mix]) -> dict[int, list[Mix]]:
    """The best mixes by batch, few of a batch and of the same stages in other orders."""
    found: dict[int, list[Mix]] = {}
    alike: dict[tuple[int, ...], int] = {}
    for mix in ordered:
        own = found.get(mix.batch, [])
        key = (mix.batch, *sorted(mix.atoms))
        if len(own) < _OF_BATCH and alike.get(key, 0) < _ALIKE:
            found.setdefault(mix.batch, own).append(mix)
            alike[key] = alike.get(key, 0) + 1
        if sum(map(len, found.values())) == _MIXES:
            break
    return found


def _search(bench: Workbench, batch: int, over: Over, **more: int) -> TemplateSearch:
    rounds = -(-bench.problem.global_batch // batch)
    return TemplateSearch(bench.tables(batch), rounds, bench.limits, over, **more)
