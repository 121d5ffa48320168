"""Simulated annealing over order, degrees and nodes: thousands of decoded states a second."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from arachne_opt.solvers.cascade.decoder import (
    MANY_NODES,
    ONE_NODE,
    TWO_NODES,
    FastDecoder,
    State,
)
from arachne_opt.solvers.cascade.schedule import Schedule

# Weight of the mean end of the cascades beside the makespan: it leads over plateaus.
_MEAN_WEIGHT = 0.01
# Placed tasks between two looks at the clock.
_STRIDE = 512
# Exact placements tried per makespan that only the decoder believes in.
_TRIES = 3
# Such tries take milliseconds: each decoded state earns a fraction of one.
_CREDIT, _FIRST_CREDIT = 1 / 500, 20.0

# Takes the number of tasks placed since the last call, tells the share of the round that is over.
Spent = Callable[[int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """How one round of annealing runs.

    Args:
        hot: first temperature as a share of the makespan; it falls geometrically to ``cold``.
        across: share of site moves that spread a group over nodes.
    """

    hot: float = 0.02
    cold: float = 0.001
    across: float = 0.1


class Annealer:
    """Searches around states of one problem.

    Args:
        offer: takes an exact schedule that is better than all before, and says whether the
            search should go on.
    """

    def __init__(
        self, decoder: FastDecoder, seed: int, offer: Callable[[Schedule], object]
    ) -> None:
        self._decoder = decoder
        self._random = random.Random(seed)
        self._offer = offer
        self._best_us = 1 << 62
        self._tried: dict[int, int] = {}
        self._credit = _FIRST_CREDIT
        tasks = decoder.digest.tasks
        self._successors = [t.successors for t in tasks]
        self._last = [t.index for t in tasks if not t.successors]
        self._free_modes = [i for i, lines in enumerate(decoder.modes) if len(lines) > 1]
        self._stride = max(1, _STRIDE // len(tasks))

    def note_best(self, makespan_us: int) -> None:
        """Schedules that are not shorter than this are not offered."""
        self._best_us = min(self._best_us, makespan_us)

    def round(self, state: State, cooling: Cooling, spent: Spent) -> State:
        """The best state seen from a start."""
        cost, where_cost = self._cost(state)
        best, best_cost = state, cost
        share = 0.0
        while share < 1.0:
            heat = where_cost * cooling.hot * (cooling.cold / cooling.hot) ** share
            for _ in range(self._stride):
                other = self._neighbour(state, cooling)
                other_cost, _ = self._cost(other)
                worse = other_cost - cost
                if worse <= 0 or self._random.random() < math.exp(-worse / heat):
                    state, cost = other, other_cost
                    if cost < best_cost:
                        best, best_cost = state, cost
            share = spent(self._stride * len(state.order))
        return best

    def _cost(self, state: State) -> tuple[float, int]:
        ends, where = self._decoder.decode(state)
        makespan = max(ends)
        self._credit += _CREDIT
        if makespan < self._best_us and self._tried.get(makespan, 0) < _TRIES and self._credit > 1:
            self._tried[makespan] = self._tried.get(makespan, 0) + 1
            self._credit -= 1
            exact = self._decoder.realise(state, ends, where)
            if exact.makespan_us < self._best_us:
                self._best_us = exact.makespan_us
                self._offer(exact)
        mean = sum(ends[i] for i in self._last) / len(self._last)
        return makespan + _MEAN_WEIGHT * mean, makespan

    def _neighbour(self, state: State, cooling: Cooling) -> State:
        draw = self._random.random()
        if draw < 0.4 and self._free_modes:
            return State(state.order, self._other_modes(state.picks), state.sites)
        if draw < 0.8:
            return State(self._other_order(state.order), state.picks, state.sites)
        return State(state.order, state.picks, self._other_sites(state.sites, cooling.across))

    def _other_modes(self, picks: list[int]) -> list[int]:
        picks = picks[:]
        for _ in range(1 + (self._random.random() < 0.5)):
            i = self._random.choice(self._free_modes)
            picks[i] = self._random.randrange(len(self._decoder.modes[i]))
        return picks

    def _other_order(self, order: list[int]) -> list[int]:
        """One task moved to another position between its predecessors and successors."""
        order = order[:]
        at = self._random.randrange(len(order))
        i = order.pop(at)
        low = max((order.index(p) + 1 for p in self._decoder.predecessors[i]), default=0)
        high = min((order.index(s) for s in self._successors[i]), default=len(order))
        order.insert(self._random.randint(low, high), i)
        return order

    def _other_sites(self, sites: list[int], across: float) -> list[int]:
        sites = sites[:]
        i = self._random.randrange(len(sites))
        draw = self._random.random()
        if draw < 0.4:
            sites[i] = ONE_NODE
        elif draw < 0.4 + across:
            sites[i] = self._random.choice((TWO_NODES, MANY_NODES))
        else:
            sites[i] = self._random.randrange(len(self._decoder.sizes))
        return sites
