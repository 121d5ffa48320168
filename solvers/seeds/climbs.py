"""Quick climbs: the first good change of a template is taken, where the search takes the best."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from arachne_opt.solvers.pipeline.neighbours import neighbours
from arachne_opt.solvers.pipeline.search import TemplateSearch
from arachne_opt.solvers.pipeline.singles import Start
from arachne_opt.solvers.pipeline.workbench import Workbench

_TOGETHER = 400  # changes that are looked at together
_EXACT = 4  # of these, the divisions that are made
_DIVISIONS = 400  # of a climb


def quick_climb(bench: Workbench, start: Start, over: Callable[[], bool]) -> Iterator[Start]:
    """Better and better templates from a start on, until no change helps or the climb is long."""
    patience = Patience(_DIVISIONS, over)
    tables, rounds = start.search.tables, start.search.microbatches
    search = TemplateSearch(tables, rounds, bench.limits, patience, exact=_EXACT)
    order = random.Random(0)
    found = start.found
    while not patience.ended():
        near = neighbours(found.template, tables.usage, bench.limits, bench.space.in_stages)
        changes = [t for t in dict.fromkeys(near) if t not in search.tried]
        order.shuffle(changes)
        for at in range(0, len(changes), _TOGETHER):
            better = search.best(changes[at : at + _TOGETHER], found.total_s)
            if better is not None:
                found = better
                yield Start(search, found)
                break
            if patience.ended():
                return
        else:
            return


class Patience:
    """Ends a search after so many questions whether it is over."""

    def __init__(self, questions: int, over: Callable[[], bool]) -> None:
        self._left = questions
        self._over = over

    def __call__(self) -> bool:
        """Counts a question, and says whether it is over."""
        self._left -= 1
        return self.ended()

    def ended(self) -> bool:
        """Whether it is over, without a question."""
        return self._left < 0 or self._over()
