"""First plans of pipelines: the columns of the templates that a policy takes for the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start, climb, column
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.policy_file import PolicyFile
from arachne_opt.solvers.seeds.pricing import templates_of
from arachne_opt.solvers.seeds.sets import offer_sets
from arachne_opt.solvers.seeds.templates import FIRST, Scored, score

_SOURCE = "learned template"
_CELLS, _OFTEN = 3, 2  # cells that are divided, of so many structures; one of the others
_NEAR = 1.05  # templates this much worse than the best one are still climbed from
_CLIMBED = 2  # batches whose best template is changed step by step
_HOPED = 1.25  # columns beyond this multiple of the best prediction are not divided
_DIVISIONS = 120  # of sixteen templates each, in a climb

Over = Callable[[], bool]


def offer_seeds(
    bench: Workbench,
    bound: WorkBound,
    best: PipelineIncumbent,
    policy: PolicyFile | None,
    over: Over,
) -> None:
    """Offers columns of the first templates, the best of them changed step by step, and sets."""
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
        patience = _Patience(over)
        search = TemplateSearch(
            start.search.tables, start.search.microbatches, bench.limits, patience
        )
        near = climb(bench, Start(search, start.found), bench.limits, patience)
        _offer(bench, best, column(near))
    offer_sets(bench, bound, best, over)


class _Patience:
    """Ends a climb after so much work: it is asked once for every exact division."""

    def __init__(self, over: Over) -> None:
        self._over = over
        self._left = _DIVISIONS

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0 or self._over()


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
