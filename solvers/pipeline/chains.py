"""The least fill of all pipelines of a batch under limits, by dynamic programming over devices.

From the last stage backwards, with k stages that hold all rows from a on, on devices d or fewer:

    fill[k, q, p, a, d] = min over ends b, next options n and splits s of q of
                          load(q, a, b | p, n) + fill[k - 1, n, q, b, d - used(q, s)]

where q is the option of the first of these stages and p that of the stage before it: both decide
what is sent. Options p that cost q the same are one class. Stages whose load or exchange is above
the limits, or whose memory does not do, take no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.solvers.pipeline.stage_facts import SplitStages

_TOGETHER = 100_000  # sums that are looked at together
LONG = 3  # pipelines of more stages pay their first send twice

_Key = tuple[int, int]
_Layer = dict[_Key, Floats]


class _Limits(NamedTuple):
    load_s: float
    exchange_s: float


@dataclass(frozen=True, slots=True)
class _Sends:
    """What stages pay for sends, by cut, with neighbours told apart as far as they differ.

    Args:
        state: of each option, the number under which its layers are kept.
        ahead: of each option, the different costs of sends to a next stage, each with the options
            of that stage.
        back: of each option, the different costs of sends to the stage before.
        back_class: of each option q and stage before it p, which of q's costs p causes.
    """

    state: tuple[int, ...]
    ahead: tuple[tuple[tuple[Floats, tuple[int, ...]], ...], ...]
    back: tuple[tuple[Floats, ...], ...]
    back_class: Ints


class Chains:
    """All pipelines of a batch. Unless ``exact``, stages pay the least sends of any neighbours.

    Args:
        stages: of the batch.
        limits: devices of each place.
        most_stages: of a pipeline.
        exact: whether sends are those between the neighbours that there are.
        across_ab: what exchanges of stages take beside those inside them.
    """

    def __init__(
        self,
        stages: SplitStages,
        limits: Ints,
        most_stages: int,
        *,
        exact: bool,
        across_ab: Floats | None = None,
    ) -> None:
        facts, splits = stages
        self.count, self.rows, self.limits = facts.count, facts.rows, limits
        self._facts, self._work, self._sync = facts, facts.work_oab, facts.exchange_oab
        if across_ab is not None:
            self._sync = self._sync + across_ab
        every = np.concatenate([np.zeros((0, len(limits)), dtype=np.int64), *splits])
        self._unit: Ints = np.maximum(np.gcd.reduce(every, axis=0), 1)
        self._cells = limits // self._unit
        self._splits = [used // self._unit for used in splits]
        self._least = [used.min(axis=0) for used in self._splits]
        self._most_stages = min(most_stages, self.rows)
        self._memory: dict[int, NDArray[np.bool_]] = {}
        self._sends = self._all_sends() if exact else self._least_sends()

    def least_fill_s(self, load_s: float, exchange_s: float, most_s: float) -> float:
        """Least fill of any template and cuts; infinite if none keeps to the limits.

        Fills above ``most_s`` may be told as infinite.
        """
        return float(self._least_fills(load_s, exchange_s, most_s).min())

    def least_fills_s(self, load_s: float, exchange_s: float, most_s: float) -> Floats:
        """The same for every number of devices of each place that a pipeline may take."""
        fills = self._least_fills(load_s, exchange_s, most_s)
        for place in range(fills.ndim):
            fills = np.minimum.accumulate(fills, axis=place)
            fills = fills.take(np.arange(self.limits[place] + 1) // self._unit[place], axis=place)
        return fills

    def _least_fills(self, load_s: float, exchange_s: float, most_s: float) -> Floats:
        """Least fills by the devices that are left, in units."""
        limits = _Limits(load_s, exchange_s)
        best = self._alone(limits)
        layer = self._last_stages(limits)
        for k in range(2, self._most_stages + 1):
            sources = list(self._sources(layer))
            self._with_first(best, k, sources, limits)
            layer = self._with_inner(k, sources, limits, most_s)
            if not layer:
                break
        return best

    def _least_sends(self) -> _Sends:
        everyone = tuple(range(self.count))
        return _Sends(
            state=(0,) * self.count,
            ahead=tuple(((row, everyone),) for row in self._facts.ahead_ob),
            back=tuple((row,) for row in self._facts.back_oa),
            back_class=np.zeros((self.count, self.count), dtype=np.int64),
        )

    def _all_sends(self) -> _Sends:
        forward, backward = self._facts.sends()
        ahead, back = [], []
        back_class = np.zeros((self.count, self.count), dtype=np.int64)
        for o in range(self.count):
            costs, of = np.unique(forward[o], axis=0, return_inverse=True)
            groups = [tuple(np.flatnonzero(of == c).tolist()) for c in range(len(costs))]
            ahead.append(tuple(zip(costs, groups, strict=True)))
            costs, back_class[o] = np.unique(backward[:, o], axis=0, return_inverse=True)
            back.append(tuple(costs))
        return _Sends(tuple(range(self.count)), tuple(ahead), tuple(back), back_class)

    def _fits(self, o: int, in_flight: int) -> NDArray[np.bool_]:
        """Which stages [a, b] the memory holds."""
        if in_flight not in self._memory:
            ends = self._facts.ends(in_flight)[:, :, None]
            self._memory[in_flight] = np.arange(self.rows + 1) <= ends
        fits: NDArray[np.bool_] = self._memory[in_flight][o]
        return fits

    def _kept(self, o: int, k: int, load_s: Floats, limits: _Limits) -> Floats:
        """Loads of stages [a, b], infinite where they do not keep to the limits."""
        good = (load_s <= limits.load_s) & (self._sync[o] <= limits.exchange_s) & self._fits(o, k)
        return np.where(good, load_s, np.inf)

    def _alone(self, limits: _Limits) -> Floats:
        best: Floats = np.full(self._shape(self._cells, self.rows), np.inf)[0]
        for o in range(self.count):
            fill = float(self._kept(o, 1, self._work[o], limits)[0, -1])
            if np.isfinite(fill):
                self._lower(best, o, self._left(o, self._nothing) + fill)
        return best

    @property
    def _nothing(self) -> Floats:
        """Fill of no stages, on any devices."""
        return np.zeros(self._shape(self._cells, self.rows))

    def _left(self, o: int, after: Floats) -> Floats:
        """The least of what comes after a stage, on devices that one of its splits leaves.

        On the devices beside the least that a split takes of each place.
        """
        cells = after.shape[1:]
        splits = self._splits[o].tolist()
        sources = [
            _corner(after, [n - u for n, u in zip(cells, used, strict=True)]) for used in splits
        ]
        if len(splits) == 1:
            return sources[0]
        room = self._cells - self._least[o] + 1
        found = np.full((len(after), *room.tolist()), np.inf)
        for used, source in zip(splits, sources, strict=True):
            beyond = [u - n for u, n in zip(used, self._least[o].tolist(), strict=True)]
            where = found[(slice(None), *(slice(n, None) for n in beyond))]
            np.minimum(where, source, out=where)
        return found

    def _lower(self, best: Floats, o: int, fill: Floats) -> None:
        """Puts fills of pipelines that begin with a stage on the devices that they take."""
        where = best[tuple(slice(n, None) for n in self._least[o].tolist())]
        np.minimum(where, fill[0], out=where)

    def _last_stages(self, limits: _Limits) -> _Layer:
        layer: _Layer = {}
        for o in range(self.count):
            for c, back in enumerate(self._sends.back[o]):
                load = self._work[o] + 2 * back[:, None]
                ends = self._kept(o, 1, load, limits)[1:, -1:]
                if np.isfinite(ends).any():
                    fill = _wide(ends, self._cells) + self._left(o, self._nothing)
                    self._keep(layer, (self._sends.state[o], c), o, fill)
        return layer

    def _sources(self, layer: _Layer) -> Iterator[tuple[int, Floats, Floats]]:
        """For each stage and cost of sends ahead the fill after it, on devices that it leaves."""
        known: dict[tuple[_Key, ...], Floats] = {}
        for o in range(self.count):
            for ahead, following in self._sends.ahead[o]:
                keys = {
                    (self._sends.state[q], int(self._sends.back_class[q, o])) for q in following
                }
                some = tuple(key for key in sorted(keys) if key in layer)
                if not some:
                    continue
                if some not in known:
                    known[some] = np.minimum.reduce([layer[key] for key in some])
                yield o, ahead, self._left(o, known[some])

    def _with_first(
        self, best: Floats, k: int, sources: list[tuple[int, Floats, Floats]], limits: _Limits
    ) -> None:
        for o, ahead, after in sources:
            load = self._work[o] + ahead * (2 if k > LONG else 1)
            self._lower(best, o, _through(self._kept(o, k, load, limits)[:1], after))

    def _with_inner(
        self, k: int, sources: list[tuple[int, Floats, Floats]], limits: _Limits, most_s: float
    ) -> _Layer:
        layer: _Layer = {}
        for o, ahead, after in sources:
            for c, back in enumerate(self._sends.back[o]):
                load = self._kept(o, k, self._work[o] + ahead + back[:, None], limits)[1:]
                fill = _through(load, after)
                fill[fill > most_s] = np.inf
                self._keep(layer, (self._sends.state[o], c), o, fill)
        return layer

    def _keep(self, layer: _Layer, key: _Key, o: int, fill: Floats) -> None:
        """Puts fills by first row from 1 on, on what devices a stage leaves, into a layer."""
        if not np.isfinite(fill).any():
            return
        if key not in layer:
            layer[key] = np.full(self._shape(self._cells, 0), np.inf)
        where = layer[key][(slice(1, None), *(slice(n, None) for n in self._least[o].tolist()))]
        np.minimum(where, fill, out=where)

    def _shape(self, cells: Ints, first_row: int) -> tuple[int, ...]:
        return (self.rows + 1 - first_row, *(cells + 1).tolist())


def _corner(after: Floats, sizes: list[int]) -> Floats:
    """The first so many cells of each place."""
    return after[(slice(None), *(slice(0, n) for n in sizes))]


def _through(load: Floats, after: Floats) -> Floats:
    """Least load[a, b] + after[b, cells] over all b."""
    cells = after.shape[1:]
    after = after.reshape(len(after), -1)
    live = np.isfinite(load).any(axis=0) & np.isfinite(after).any(axis=1)
    ends = np.flatnonzero(live)
    fill = np.full((len(load), after.shape[1]), np.inf)
    step = max(1, _TOGETHER // fill.size)
    for i in range(0, len(ends), step):
        some = ends[i : i + step]
        through = (load[:, some, None] + after[None, some]).min(axis=1)
        np.minimum(fill, through, out=fill)
    return fill.reshape(len(load), *cells)


def _wide(column: Floats, cells: Ints) -> Floats:
    """A column of values with an axis for each place."""
    wide: Floats = column.reshape(len(column), *([1] * len(cells)))
    return wide
