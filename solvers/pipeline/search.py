"""Search among templates of one batch: quick tests first, the exact division for what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.partition import Division, Templates
from arachne_opt.solvers.pipeline.tables import BatchTables

# Parts of the time of an iteration that the gradient exchange may take; one template is tried
# under each of these limits, since a lower one asks for shorter stages.
_SYNC_PARTS = np.array([0.02, 0.05, 0.09, 0.14, 0.2, 0.28, 0.4, 1.0])
_HALVINGS = 7
_EXACT = 16  # templates of a call that get an exact division
_STEPS = 24  # exact divisions of a template under ever lower limits
_EACH_HALVINGS = 20
_EACH_SLACKS = (1 + 1e-4, 1.04)
_BELOW = 1 - 1e-9

Template = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A template with its layers and what it costs.

    Args:
        total_s: cautious seconds of an iteration with ``microbatches`` micro-batches.
    """

    template: Template
    cuts: tuple[int, ...]
    load_s: float
    fill_s: float
    update_s: float
    sync_s: float
    total_s: float


class TemplateSearch:
    """Looks for the template and layers with the least time, for a batch and a number of rounds.

    ``over`` ends the search early, with the best so far; so many templates of a call get an
    ``exact`` division.
    """

    def __init__(
        self,
        tables: BatchTables,
        microbatches: int,
        limits: Ints,
        over: Callable[[], bool] = lambda: False,
        *,
        exact: int = _EXACT,
    ) -> None:
        self.tables = tables
        self.microbatches = microbatches
        self.limits = limits
        self.tried: set[Template] = set()
        self._over = over
        self._exact_count = exact

    def best(self, templates: Iterable[Template], below_s: float) -> Found | None:
        """The best of the templates, if one takes less than ``below_s``."""
        groups: dict[int, list[Template]] = {}
        for t in templates:
            if t not in self.tried:
                self.tried.add(t)
                groups.setdefault(len(t), []).append(t)
        best: Found | None = None
        for group in groups.values():
            if self._over():
                break
            found = self._best_of(np.array(group), below_s)
            if found is not None:
                best, below_s = found, found.total_s
        return best

    def _best_of(self, templates: Ints, below_s: float) -> Found | None:
        used = self.tables.usage[templates].sum(axis=1)
        fits = (used <= self.limits).all(axis=1)
        templates = templates[fits & self.tables.allowed(templates)]
        if not len(templates):
            return None
        batch = Templates(self.tables, templates)
        which, guess = self._promising(batch, below_s)
        best: Found | None = None
        order = np.argsort(guess, kind="stable")
        _, firsts = np.unique(which[order], return_index=True)
        chosen = order[np.sort(firsts)][: self._exact_count]
        if len(chosen):
            best = self._exact(batch, which[chosen], below_s)
        return best

    def _promising(self, batch: Templates, below_s: float) -> tuple[Ints, Floats]:
        """Templates that may take less time, each once for every limit, with guesses."""
        rounds = self.microbatches - 1
        known = np.isfinite(below_s)
        top = below_s if known else self._any_time(batch) * self.microbatches
        which = np.repeat(np.arange(batch.count), len(_SYNC_PARTS))
        sync = np.tile(np.append(_SYNC_PARTS[:-1] * top, np.inf), batch.count)
        # An exchange above the next lower limit, and at least one round of the load.
        over = np.tile(np.append(0, _SYNC_PARTS[:-1]) * top, batch.count)
        high = (top - over) / (rounds + 1)
        keep = np.isfinite(batch.reach(which, high, sync))
        which, sync, high = which[keep], sync[keep], high[keep]
        low = np.zeros(len(which))
        for _ in range(_HALVINGS if known else 3 * _HALVINGS):
            if not len(which):
                break
            middle = (low + high) / 2
            good = np.isfinite(batch.reach(which, middle, sync))
            low, high = np.where(good, low, middle), np.where(good, middle, high)
        fill = batch.reach(which, high, sync)
        guess = rounds * high + fill + np.where(np.isfinite(sync), (over[keep] + sync) / 2, top)
        return which, guess

    def _any_time(self, batch: Templates) -> float:
        """A load that no stage exceeds."""
        work = self.tables.work_oab[np.unique(batch.templates)]
        sends = sum(float(x[np.isfinite(x)].max(initial=0)) for x in (*batch.ahead, *batch.back))
        return float(work[np.isfinite(work)].max()) + sends

    def each(self, templates: Ints, rounds: Ints, sync_s: Floats) -> list[Found | None]:
        """The division of each template with about the least time for its number of rounds.

        Args:
            templates: all of the same number of stages.
            rounds: micro-batches of each.
            sync_s: most gradient exchange of each.
        """
        batch = Templates(self.tables, templates)
        which = np.arange(batch.count)
        low, high = np.zeros(batch.count), np.full(batch.count, self._any_time(batch))
        possible = np.isfinite(batch.reach(which, high, sync_s)) & self.tables.allowed(templates)
        for _ in range(_EACH_HALVINGS):
            middle = (low + high) / 2
            good = np.isfinite(batch.reach(which, middle, sync_s))
            low, high = np.where(good, low, middle), np.where(good, middle, high)
        found: list[Found | None] = [None] * batch.count
        for slack in _EACH_SLACKS:
            division = batch.divide(which, high * slack, sync_s)
            total = division.total_s(rounds)
            for n in np.flatnonzero(possible & np.isfinite(total)).tolist():
                before = found[n]
                if before is None or total[n] < before.total_s:
                    found[n] = _found(batch, n, division, n, float(total[n]))
        return found

    def _exact(self, batch: Templates, which: Ints, below_s: float) -> Found | None:
        """The best divisions, under ever lower loads and then under ever lower exchanges."""
        best: Found | None = None
        rounds = max(self.microbatches - 1, 1)
        free = np.full(len(which), np.inf)
        least_fill = batch.divide(which, free, free).fill_s
        load, sync, last = _rest_s(below_s, least_fill) / rounds, free, free
        for _ in range(_STEPS):
            alive = load > 0
            which, load, sync = which[alive], load[alive], sync[alive]
            last, least_fill = last[alive], least_fill[alive]
            if not len(which) or self._over():
                break
            division = batch.divide(which, load, sync)
            total = division.total_s(self.microbatches)
            for n in np.flatnonzero(total < below_s):
                if total[n] < below_s:
                    best = _found(batch, int(which[n]), division, int(n), float(total[n]))
                    below_s = best.total_s
            # Where no lower load is possible the exchange has to be lower, with any load again;
            # where that was just tried the template has nothing better to give.
            found = np.isfinite(division.fill_s)
            top = _rest_s(below_s, least_fill) / rounds
            rest = _rest_s(below_s, division.fill_s) / rounds
            lower = np.minimum(division.load_s * _BELOW, rest)
            load = np.where(found, lower, np.where(np.isfinite(last), top, 0))
            sync = np.where(found, sync, last * _BELOW)
            last = np.where(found, division.sync_s, np.inf)
        return best


def _rest_s(below_s: float, fill_s: Floats) -> Floats:
    """Time beside the fill; none where there is no division, whatever time there is."""
    rest = np.zeros_like(fill_s)
    np.subtract(below_s, fill_s, out=rest, where=np.isfinite(fill_s))
    return rest


def _found(batch: Templates, n: int, division: Division, row: int, total_s: float) -> Found:
    return Found(
        template=tuple(batch.templates[n].tolist()),
        cuts=tuple(division.cuts[row].tolist()),
        load_s=float(division.load_s[row]),
        fill_s=float(division.fill_s[row]),
        update_s=float(division.update_s[row]),
        sync_s=float(division.sync_s[row]),
        total_s=total_s,
    )
