"""Proofs that no plan of several pipelines takes less than some time.

Plans are told apart by the types of their devices, by the number of their pipelines and by the
gradient exchange X, which all pipelines share: each ends within T - X, and the exchange of each
stage, inside and across, is at most X. In each of these cases either prices of devices are found
that are worth fewer samples than there are, though no pipeline trains more than its price; or all
pipelines that could still take part are put together by a knapsack over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product

import numpy as np

from arachne_opt.costs.pipeline.base import Floats
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.device_prices import PriceFitter, Prices, Window, swept
from arachne_opt.solvers.pipeline.part_tables import none_go_together
from arachne_opt.solvers.pipeline.priced_chains import PricedChains
from arachne_opt.solvers.pipeline.stage_facts import Stages
from arachne_opt.solvers.pipeline.workbench import Workbench

Span = tuple[float, float]

_FIRST_STEP = 0.06  # of the time, between limits of the exchange
_LAST_STEP = 0.004
_FINEST_STEP = 0.001  # the same for what is open after that
_EACH = 8  # up to so many pipelines every number is a case of its own
_GROWTH = 1.2
_FINE = 1.005  # ratio of the loads of parts whose profit is known well
_SURVIVING = 1.02
_TINY = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Plans on some types of devices, with some numbers of pipelines and exchanges."""

    places: tuple[int, ...]
    least: int
    most: int
    exchange_s: Span


def open_cases(
    bench: Workbench,
    stages: Stages,
    seconds: float,
    over: Callable[[], bool],
    *,
    least: int = 2,
) -> Iterator[Case]:
    """Cases in which a plan of ``least`` pipelines or more may take less time: none is a proof.

    The proof holds for pipelines of these stages, any number of them, in any order and with any
    rows. A search that is over leaves the rest of the cases open.
    """
    proof = _Proof(bench, stages, seconds, over)
    for places in _subsets(len(bench.space.places)):
        room = seconds - proof.bound.seconds(bench.problem.global_batch, places)
        if room < 0:
            continue
        steps = max(1, round(room / seconds / _FIRST_STEP))
        ends = np.linspace(0, room, steps + 1).tolist()
        for low, high in _counts(least, proof.most_pipelines(places)):
            across = proof.across_ab(places, low, high)
            for span in pairwise(ends):
                case = Case(places=places, least=low, most=high, exchange_s=span)
                yield from proof.open_parts(case, across)


class _Proof:
    def __init__(
        self, bench: Workbench, stages: Stages, seconds: float, over: Callable[[], bool]
    ) -> None:
        self.bench = bench
        self.stages = stages
        self.seconds = seconds
        self.over = over
        self.bound = WorkBound(bench.space)
        batches = range(1, max(stages.batches, default=0) + 1)
        priced = (stages.priced(batch) for batch in batches)
        chains = [PricedChains(p, bench.space.in_stages) for p in priced if p.facts.count]
        self._fitter = PriceFitter(chains, Prices(self.bound.prices, 0.0))

    def most_pipelines(self, places: tuple[int, ...]) -> int:
        """More pipelines would need more devices, or more of their memory, than there are."""
        limits = np.zeros(len(self.bench.space.places))
        limits[list(places)] = self.bench.place_limits[list(places)]
        kinds = self.bench.problem.cluster.device_types
        memory = np.array([kinds[name].memory_bytes for name, _ in self.bench.space.places], float)
        most = limits.sum()
        for weights in (np.ones_like(limits), memory / memory.sum()):
            least = min((c.cheapest(weights, limits) for c in self._fitter.chains), default=np.inf)
            most = min(most, limits @ weights / least)
        return int(most + _TINY)

    def open_parts(self, case: Case, across_ab: Floats) -> Iterator[Case]:
        """The parts of a case that stay open."""
        low, high = case.exchange_s
        last = high - low <= _LAST_STEP * self.seconds
        if self._closed(case, across_ab, last=last):
            return
        if high - low <= _FINEST_STEP * self.seconds or self.over():
            yield case
            return
        middle = (low + high) / 2
        for span in ((low, middle), (middle, high)):
            part = Case(places=case.places, least=case.least, most=case.most, exchange_s=span)
            yield from self.open_parts(part, across_ab)

    def across_ab(self, places: tuple[int, ...], least: int, most: int) -> Floats:
        """Least exchange of a stage across pipelines, on the slowest link between the places."""
        kinds = [ReplicaKind(*_name_and_zone(self.bench, p)) for p in places]
        costs = self.bench.costs
        tables = [
            np.max([costs.cross_sync_s(a, b, n) for a, b in product(kinds, kinds)], axis=0)
            for n in range(least, most + 1)
        ]
        found: Floats = np.min(tables, axis=0)
        return found

    def _closed(self, case: Case, across_ab: Floats, *, last: bool) -> bool:
        window = self._window(case, across_ab)
        fit = self._fitter.fit(window, finest=_FINE if last else 0.0, over=self.over)
        if fit is None:
            return False
        worth = window.worth(fit.prices)
        if not fit.parts and worth < window.samples:
            return True
        if not last:
            return False
        # A pipeline that falls short of its price by more than all others can make up for, and
        # than what the prices are worth too much, is in no plan that trains enough.
        profit = max((p.profit for p in fit.parts), default=0.0)
        short = max(worth - window.samples, 0.0) + (case.most - 1) * profit + 1e-6 * worth
        parts = []
        for chains in self._fitter.chains:
            sweep = swept(chains, window, fit.prices, above=-short, finest=_SURVIVING)
            if sweep.found or self.over():  # then not all was looked at
                return False
            parts += sweep.parts
        return none_go_together(self.bench, self.stages, window, case.least, parts, self.over)

    def _window(self, case: Case, across_ab: Floats) -> Window:
        devices = np.zeros(len(self.bench.space.places))
        devices[list(case.places)] = self.bench.place_limits[list(case.places)]
        return Window(
            samples=self.bench.problem.global_batch,
            left_s=self.seconds - case.exchange_s[0],
            most_exchange_s=case.exchange_s[1],
            across_ab=across_ab,
            devices=devices,
            pipelines=case.most,
            sample_s=self.bound.seconds(1, case.places),
        )


def _subsets(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, count + 1):
        yield from combinations(range(count), size)


def _counts(least: int, devices: int) -> Iterator[tuple[int, int]]:
    """Numbers of pipelines, the larger ones several together."""
    while least <= devices:
        most = least if least <= _EACH else min(devices, int(least * _GROWTH))
        yield least, most
        least = most + 1


def _name_and_zone(bench: Workbench, place: int) -> tuple[str, int, int, bool, str]:
    name, zone = bench.space.places[place]
    return name, 1, 1, False, zone
