"""Prices of devices at which no pipeline trains more samples than what it takes is worth.

Pipelines that end within some time train, all together, at most

    Σ prices · devices + price of a pipeline · number of pipelines

samples if none of them trains more than its own price: the dual of the linear program over all
pipelines that there are. Columns are generated from the pipelines that do train more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from arachne_opt.costs.pipeline.base import Floats
from arachne_opt.solvers.pipeline.priced_chains import Chain, PricedChains, Question

_TINY = 1e-9
_SAME = 1e-6  # of the samples, gains below which are no reason for other prices
_MARGIN = 1e-7  # of the samples, by which a proof misses them at least
_COARSE = 1.28  # ratio of the loads at the two ends of a first part
_NARROW = 1.03  # parts that whole micro-batches are looked at in
_FACTORS = (1e-9, 0.1, 0.3, 3.0)  # of the usual price of a second, for whole micro-batches
_ENOUGH = 3  # pipelines of a batch that train too much, after which the prices are made anew
_ROUNDS = 40


class Prices(NamedTuple):
    """Samples that a device of each place is worth, and a pipeline beside its devices."""

    devices: Floats
    pipeline: float


class Part(NamedTuple):
    """Pipelines of a batch whose load is at least ``low_s`` and at most ``high_s``.

    Args:
        profit: samples that they train beyond their price, at most.
    """

    chains: PricedChains
    low_s: float
    high_s: float
    profit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What plans are looked at.

    Args:
        samples: what they have to train.
        left_s: time for micro-batches.
        most_exchange_s: most gradient exchange of a stage, inside and across.
        across_ab: its part across pipelines.
        devices: devices of each place, 0 where there may be none.
        pipelines: most pipelines.
        sample_s: least load of a pipeline for each sample of its batch.
    """

    samples: int
    left_s: float
    most_exchange_s: float
    across_ab: Floats
    devices: Floats
    pipelines: int
    sample_s: float

    def trained(self, chain: Chain) -> float:
        """Samples of a pipeline within the time."""
        if chain.fill_s > self.left_s:
            return 0.0
        rounds = np.floor(1 + (self.left_s - chain.fill_s) / chain.load_s + _TINY)
        return float(chain.batch * rounds)

    def exchange_s(self, chains: PricedChains, chain: Chain) -> float:
        """Exchange of a pipeline's slowest stage."""
        return max(float(chains.exchange_s[s] + self.across_ab[s[1:]]) for s in chain.stages)

    def worth(self, prices: Prices) -> float:
        """Samples that all devices and pipelines are worth."""
        return float(self.devices @ prices.devices) + self.pipelines * prices.pipeline

    def scaled(self, prices: Prices, worth: float) -> Prices:
        """The same prices with another worth."""
        factor = worth / self.worth(prices)
        return Prices(prices.devices * factor, prices.pipeline * factor)


@dataclass(frozen=True, slots=True)
class Fit:
    """Prices, and parts that may train more than them all the same."""

    prices: Prices
    parts: tuple[Part, ...]


@dataclass(slots=True)
class PriceFitter:
    """Fits prices in one window after the other; what was found once is used again."""

    chains: list[PricedChains]
    prices: Prices
    _columns: dict[tuple[object, ...], tuple[PricedChains, Chain]] = field(default_factory=dict)

    def fit(self, window: Window, *, finest: float, over: Callable[[], bool]) -> Fit | None:
        """Prices that are worth fewer samples than wanted, or else the lowest that there are.

        With a ``finest`` of 0 the search ends without prices as soon as they cannot be a proof.
        """
        short = window.samples * (1 - _MARGIN)
        for _ in range(_ROUNDS):
            prices, worth = self._of_columns(window)
            if worth >= short and not finest:
                return None
            prices = window.scaled(prices, max(worth * (1 + _MARGIN), short))
            self.prices = prices
            known, found, parts = len(self._columns), 0, []
            for chains in tuple(self.chains):
                if over():
                    return None
                sweep = swept(chains, window, prices, above=0.0, finest=finest or _NARROW)
                self._columns |= {(c.batch, c.stages): (chains, c) for c in sweep.found}
                found += len(sweep.found)
                parts += sweep.parts
                if sweep.parts and not finest:
                    self._first_looked_at(chains)
                    return None
            if not found:
                return Fit(prices, tuple(parts))
            if len(self._columns) == known:  # the linear program has come to its tolerance
                return None
        return None

    def _first_looked_at(self, chains: PricedChains) -> None:
        """What was open once is likely to be open again."""
        self.chains.remove(chains)
        self.chains.insert(0, chains)

    def _of_columns(self, window: Window) -> tuple[Prices, float]:
        """Lowest prices at which no known pipeline trains too much, and their worth."""
        columns = [
            c
            for chains, c in self._columns.values()
            if window.exchange_s(chains, c) <= window.most_exchange_s
            and (c.used[window.devices == 0] == 0).all()
            and window.trained(c) > 0
        ]
        if not columns:
            return self.prices, 0.0
        used = np.array([[*c.used, 1.0] for c in columns])
        trained = np.array([window.trained(c) for c in columns])
        found = _lowest(used, trained, np.array([*window.devices, window.pipelines]))
        prices = Prices(found[:-1], float(found[-1]))
        return prices, window.worth(prices)


class Sweep(NamedTuple):
    """Pipelines that train more than their price, and parts that may do so."""

    found: list[Chain]
    parts: list[Part]


def swept(
    chains: PricedChains, window: Window, prices: Prices, *, above: float, finest: float
) -> Sweep:
    """All pipelines of a batch that may train ``above`` more samples than they are worth.

    Pipelines are parted by their load, and parts again, down to a ratio of the ends.
    """
    sweep = Sweep([], [])
    low, high = _first_parts(chains, window)
    while len(low) and len(sweep.found) < _ENOUGH:
        profit = _profits(chains, window, prices, low, high, above, sweep)
        ratio = high / low
        alive = profit > above
        done = alive & (ratio <= finest)
        for n in np.flatnonzero(done).tolist():
            sweep.parts.append(Part(chains, float(low[n]), float(high[n]), float(profit[n])))
        split = alive & ~done
        middle = np.sqrt(low[split] * high[split])
        low = np.concatenate([low[split], middle])
        high = np.concatenate([middle, high[split]])
    return sweep


def _first_parts(chains: PricedChains, window: Window) -> tuple[Floats, Floats]:
    """From the least load that a pipeline of the batch may have to the longest."""
    least = window.sample_s * chains.batch
    if not chains.count or least >= window.left_s:
        return np.zeros(0), np.zeros(0)
    count = 2 + int(np.log(window.left_s / least) / np.log(_COARSE))
    ends = np.geomspace(least, window.left_s, count)
    ends[0] *= 1 - _TINY
    return ends[:-1], ends[1:]


def _profits(
    chains: PricedChains,
    window: Window,
    prices: Prices,
    low: Floats,
    high: Floats,
    above: float,
    sweep: Sweep,
) -> Floats:
    """Samples beyond the price, at most, of pipelines with loads between low and high."""
    allowed = chains.exchange_s + window.across_ab <= window.most_exchange_s
    allowed &= (chains.used[:, window.devices == 0] == 0).all(axis=1)[:, None, None]
    weight = chains.batch / low
    worth = chains.batch * (1 + window.left_s / low) - prices.pipeline
    answer = chains.least(Question(weight, prices.devices, high, worth - above, allowed))
    profit: Floats = worth - answer.price
    for n in np.flatnonzero(profit > max(above, 0.0)).tolist():
        chain = answer.chain(n)
        gain = window.trained(chain) - float(chain.used @ prices.devices) - prices.pipeline
        if gain > _SAME * window.samples:
            sweep.found.append(chain)
    narrow = np.flatnonzero((profit > above) & (high / low <= _NARROW))
    if len(narrow) and len(sweep.found) < _ENOUGH:
        asked = Question(weight[narrow], prices.devices, high[narrow], low[narrow], allowed)
        whole = _whole_profits(chains, window, prices, asked, answer.price[narrow])
        profit[narrow] = np.minimum(profit[narrow], whole)
    return profit


def _whole_profits(
    chains: PricedChains, window: Window, prices: Prices, asked: Question, price: Floats
) -> Floats:
    """The same with whole micro-batches.

    M of them take at least (M - 1) · low + fill, so that a pipeline's devices cost at least
    price(w) - w · (left - (M - 1) · low) for every price w of a second of fill.

    Args:
        chains: pipelines of a batch.
        window: what plans are looked at.
        prices: what devices are worth.
        asked: with the least load in the place of the highest price.
        price: of devices and fill at the usual price of a second.
    """
    low, free = asked.most, np.full(len(asked.most), np.inf)
    nothing = np.zeros(len(prices.devices))
    only_fill = Question(np.ones(len(low)), nothing, asked.load_s, free, asked.allowed)
    least_fill = chains.least(only_fill).price
    known = [(asked.weight, price)]
    for factor in _FACTORS:
        weight = asked.weight * factor
        question = Question(weight, prices.devices, asked.load_s, free, asked.allowed)
        known.append((weight, chains.least(question).price))
    profit = np.full(len(low), -np.inf)
    for n in np.flatnonzero(least_fill <= window.left_s).tolist():
        most = int(1 + (window.left_s - least_fill[n]) / low[n] + _TINY)
        rounds = np.arange(1, most + 1)
        room = window.left_s - (rounds - 1) * low[n]
        need = np.max([cost[n] - weight[n] * room for weight, cost in known], axis=0)
        profit[n] = (chains.batch * rounds - prices.pipeline - need).max()
    return profit


def _lowest(used: Floats, trained: Floats, worth: Floats) -> Floats:
    """The x >= 0 of least worth · x with used · x >= trained."""
    import highspy

    model = highspy.Highs()
    model.silent()
    x = [model.addVariable(lb=0.0, obj=float(w)) for w in worth]
    for row, least in zip(used.tolist(), trained.tolist(), strict=True):
        model.addConstr(sum(u * v for u, v in zip(row, x, strict=True) if u) >= least)
    model.minimize()
    found: Floats = np.maximum(np.array([float(model.val(v)) for v in x]), 0.0)
    return found
