"""Pipelines of a batch at the least price: so much for a second of fill, so much for a device.

From the last stage backwards, with k stages that hold all rows from a on:

    price[k, a] = min over options o and ends b of
                  weight · load(o, a, b) + devices(o) · prices + price[k - 1, b]

Stages pay the least sends of any neighbours, and nothing limits the sum of the devices, so that no
pipeline costs less. Many limits of the load are looked at together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.chains import LONG
from arachne_opt.solvers.pipeline.stage_facts import PricedStages

_Allowed = NDArray[np.bool_]

_ANY = 1e300  # seconds, more than any stage takes; their price is as low


class Chain(NamedTuple):
    """A pipeline with its devices of each place; stages are options with first and end rows."""

    batch: int
    used: Floats
    load_s: float
    fill_s: float
    stages: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Question:
    """Which pipelines are looked for, for several limits n.

    Args:
        weight: price of a second of fill, by n.
        prices: price of a device, by place.
        load_s: most load of a stage, by n.
        most: prices above which nothing has to be told, by n.
        allowed: which stages [option, first, end] may take part.
    """

    weight: Floats
    prices: Floats
    load_s: Floats
    most: Floats
    allowed: _Allowed


class _Step(NamedTuple):
    """Least prices of stages and what follows them, with the choices that lead there."""

    price: Floats
    option: Ints
    end: Ints


class Answer:
    """Least prices, and a pipeline that has each of them."""

    def __init__(self, chains: PricedChains, limits: int) -> None:
        self.price = np.full(limits, np.inf)
        self._chains = chains
        self._heads: list[tuple[int, int, int]] = [(0, 0, 0)] * limits
        self._steps: list[_Step] = []

    def chain(self, n: int) -> Chain:
        """The pipeline of a limit with a finite price."""
        k, option, end = self._heads[n]
        stages = []
        first = 0
        while True:
            end = self._chains.rows if k == 1 else end
            stages.append((option, first, end))
            if k == 1:
                return self._chains.chain(tuple(stages))
            step, first, k = self._steps[k - 2], end, k - 1
            option, end = int(step.option[n, first]), int(step.end[n, first])

    def offer(self, k: int, first: _Step) -> None:
        """Takes over pipelines of k stages where they cost less."""
        for n in np.flatnonzero(first.price[:, 0] < self.price).tolist():
            self.price[n] = first.price[n, 0]
            self._heads[n] = (k, int(first.option[n, 0]), int(first.end[n, 0]))

    def keep(self, step: _Step) -> None:
        """Remembers how later stages are reached."""
        self._steps.append(step)


class PricedChains:
    """All pipelines of the stages of a batch, of so many stages at most."""

    def __init__(self, stages: PricedStages, most_stages: int) -> None:
        facts, self.used = stages
        self.batch, self.count, self.rows = facts.batch, facts.count, facts.rows
        self.exchange_s = facts.exchange_oab
        self.most_stages = min(most_stages, self.rows)
        self._facts, self._work = facts, facts.work_oab
        self._ahead, self._back = facts.ahead_ob[:, None, :], facts.back_oa[:, :, None]
        self._ends: dict[int, Ints] = {}

    def cheapest(self, prices: Floats, limits: Floats) -> float:
        """Least price of the devices of a pipeline, infinite where there is none.

        Args:
            prices: of a device, by place.
            limits: devices of each place, 0 where there may be none.
        """
        one = np.ones(1)
        fits: _Allowed = np.asarray((self.used <= limits).all(axis=1))
        allowed = np.broadcast_to(fits[:, None, None], self._work.shape)
        answer = self.least(Question(one / _ANY, prices, _ANY * one, np.inf * one, allowed))
        return float(answer.price[0])

    def least(self, question: Question) -> Answer:
        """The least price for each limit; infinite where no pipeline keeps to it."""
        limits = len(question.load_s)
        answer = Answer(self, limits)
        devices = self.used @ question.prices
        after = np.zeros((limits, 1))
        for k in range(1, self.most_stages + 1):
            allowed = question.allowed & self._fits(k)
            answer.offer(k, self._step(question, devices, self._first(k, allowed), after))
            if k == self.most_stages:
                break
            step = self._step(question, devices, self._later(k, allowed), after)
            after = step.price
            after[:, 0] = np.inf
            after[after >= np.minimum(answer.price, question.most)[:, None]] = np.inf
            answer.keep(step)
            if not np.isfinite(after).any():
                break
        return answer

    def chain(self, stages: tuple[tuple[int, int, int], ...]) -> Chain:
        """A pipeline of given stages."""
        last = len(stages)
        loads = []
        for i, (o, a, b) in enumerate(stages):
            every = np.ones(self._work.shape, dtype=bool)
            load = self._first(last, every) if i == 0 else self._later(last - i, every)
            loads.append(load[o, a, b if load.shape[2] > 1 else 0])
        used = self.used[[o for o, _, _ in stages]].sum(axis=0)
        return Chain(self.batch, used, float(max(loads)), float(sum(loads)), stages)

    def _first(self, k: int, allowed: _Allowed) -> Floats:
        """Loads [option, 0, end] of first stages of k; the last of the rows only where k is 1."""
        if k == 1:
            return np.where(allowed, self._work, np.inf)[:, :1, -1:]
        ahead = self._ahead * (2 if k > LONG else 1)
        return np.where(allowed, self._work + ahead, np.inf)[:, :1]

    def _later(self, k: int, allowed: _Allowed) -> Floats:
        """Loads [option, first, end] of stages that are followed by k - 1 more."""
        if k == 1:
            return np.where(allowed, self._work + 2 * self._back, np.inf)[:, :, -1:]
        return np.where(allowed, self._work + self._ahead + self._back, np.inf)

    def _fits(self, in_flight: int) -> _Allowed:
        """Which stages [option, first, end] the memory holds."""
        if in_flight not in self._ends:
            self._ends[in_flight] = self._facts.ends(in_flight)[:, :, None]
        fits: _Allowed = np.arange(self.rows + 1) <= self._ends[in_flight]
        return fits

    def _step(self, question: Question, devices: Floats, loads: Floats, after: Floats) -> _Step:
        """Stages before what there is: over all options and ends."""
        shape = (len(after), loads.shape[1])
        found = _Step(np.full(shape, np.inf), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
        live = np.flatnonzero(np.isfinite(after).any(axis=1))
        possible = np.isfinite(loads) & np.isfinite(after).any(axis=0)
        rows = np.flatnonzero(possible.any(axis=(0, 2)))
        option, end = np.nonzero(possible.any(axis=1))
        if not len(rows) or not len(live):
            return found
        load = loads[option, :, end][:, rows].T[None]
        cost = np.where(
            load <= question.load_s[live, None, None],
            load * question.weight[live, None, None],
            np.inf,
        )
        cost += (after[live[:, None], end] + devices[option])[:, None]
        choice = cost.argmin(axis=2)
        part = np.ix_(live, rows)
        found.price[part] = np.take_along_axis(cost, choice[:, :, None], 2)[:, :, 0]
        found.option[part], found.end[part] = option[choice], end[choice]
        return found
