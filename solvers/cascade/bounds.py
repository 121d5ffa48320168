"""Lower bounds of the makespan that hold for every legal plan, in integers only.

All rest on one fact: in a plan of makespan T each cascade picks modes whose chain is at most T,
and the device time of all picks is at most T times the devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from weakref import WeakKeyDictionary

from arachne_opt.solvers.cascade.digest import Digest, Mode

# Steps of the search for the prices of device types on mixed clusters.
_PRICE_ROUNDS = 40
# Of the problems at hand: many parts of a search ask for them.
_fronts_of: WeakKeyDictionary[Digest, list[list[Pick]]] = WeakKeyDictionary()


class Pick(NamedTuple):
    """Modes of one cascade: the length of its chain, its priced device time, the modes."""

    chain_us: int
    cost: int
    modes: tuple[Mode, ...]


def lower_bound(digest: Digest) -> int:
    """The best of the bounds below, in µs."""
    best = deadline_bound(digest, [1] * len(digest.kind_names))
    if len(digest.kind_names) > 1:
        best = max(best, _priced_bound(digest))
    return max(best, pin_bound(digest))


def chain_bound(digest: Digest) -> int:
    """Longest of the cascades' shortest chains."""
    return max(front[0].chain_us for front in cascade_fronts(digest))


def area_bound(digest: Digest, prices: Sequence[int]) -> int:
    """Sum of least priced device times over the priced devices.

    T * sum(price_k * N_k) >= sum over tasks of min over modes of price_k * degree * least_us,
    for any prices >= 0 of the device types.
    """
    least = sum(min(prices[m.kind] * m.area_us for m in t.modes) for t in digest.tasks)
    return -(-least // _capacity(digest, prices))


def pin_bound(digest: Digest) -> int:
    """For a set S of devices: least device time of the tasks pinned inside S over |S|, rounded up.

    T * |S| >= sum over tasks with allowed devices inside S of min over modes of degree * least_us,
    for the sets that tasks are pinned to.
    """
    pins = {t.allowed for t in digest.tasks if t.allowed is not None}
    best = 0
    for devices in pins:
        inside = [t for t in digest.tasks if t.allowed is not None and t.allowed <= devices]
        area_us = sum(min(m.area_us for m in t.modes) for t in inside)
        best = max(best, -(-area_us // len(devices)))
    return best


def deadline_bound(digest: Digest, prices: Sequence[int]) -> int:
    """Least T at which the cheapest picks whose chains fit T have no more device time than T has.

    The sum of the cheapest picks only falls as T grows, so that every smaller T is impossible.
    """
    known = list(prices) == speed_prices(digest)
    of_cascade = cascade_fronts(digest) if known else fronts_by_shape(digest, prices)
    first = {shape: c for c, shape in reversed(list(enumerate(digest.shape_of_cascade)))}
    counts = Counter(digest.shape_of_cascade)
    fronts = [(n, of_cascade[first[shape]]) for shape, n in counts.items()]
    capacity = _capacity(digest, prices)
    low = max(front[0].chain_us for _, front in fronts)
    steps = sorted({p.chain_us for _, front in fronts for p in front if p.chain_us >= low})
    at = [0] * len(fronts)
    for step, following in [*pairwise(steps), (steps[-1], None)]:
        cost = 0
        for i, (n, front) in enumerate(fronts):
            while at[i] + 1 < len(front) and front[at[i] + 1].chain_us <= step:
                at[i] += 1
            cost += n * front[at[i]].cost
        least = max(step, -(-cost // capacity))
        if following is None or least < following:
            return least
    raise AssertionError("the last step has no end")


def _capacity(digest: Digest, prices: Sequence[int]) -> int:
    return sum(p * n for p, n in zip(prices, digest.count_of_kind, strict=True))


def _priced_bound(digest: Digest) -> int:
    """Deadline bound with prices that balance the types: the busier type becomes dearer."""
    prices = [1000] * len(digest.kind_names)
    best = 0
    for step in range(_PRICE_ROUNDS):
        best = max(best, deadline_bound(digest, prices))
        load = [0] * len(prices)
        for task in digest.tasks:
            mode = min(task.modes, key=lambda m: (prices[m.kind] * m.area_us, m.kind, m.degree))
            load[mode.kind] += mode.area_us
        busy = [area / n for area, n in zip(load, digest.count_of_kind, strict=True)]
        mean = sum(busy) / len(busy)
        rate = 0.5 / (1 + step / 4)
        prices = [
            max(1, min(10**6, round(p * (1 + rate * (b - mean) / mean))))
            for p, b in zip(prices, busy, strict=True)
        ]
    return best


def cascade_fronts(digest: Digest) -> list[list[Pick]]:
    """Undominated picks of every cascade; the types' prices follow from their device counts."""
    known = _fronts_of.get(digest)
    if known is None:
        known = _fronts_of[digest] = fronts_by_shape(digest, speed_prices(digest))
    return known


def speed_prices(digest: Digest) -> list[int]:
    """A price per device type: the faster a type on the tasks that all types run, the dearer."""
    total = [0] * len(digest.kind_names)
    if len(total) == 1:
        return [1]
    for task in digest.tasks:
        least = [
            min((m.area_us for m in task.modes if m.kind == k), default=None)
            for k in range(len(total))
        ]
        if None not in least:
            total = [t + (a or 0) for t, a in zip(total, least, strict=True)]
    slowest = max(total)
    return [round(1000 * slowest / t) if t else 1000 for t in total]


def fronts_by_shape(digest: Digest, prices: Sequence[int]) -> list[list[Pick]]:
    """The picks of every cascade that no others beat; cascades of one shape share theirs."""
    by_shape: dict[int, list[Pick]] = {}
    for shape, row in zip(digest.shape_of_cascade, digest.cascades, strict=True):
        if shape not in by_shape:
            by_shape[shape] = pareto_picks(digest, row, prices)
    return [by_shape[shape] for shape in digest.shape_of_cascade]


def pareto_picks(digest: Digest, row: Sequence[int], prices: Sequence[int]) -> list[Pick]:
    """Picks of a cascade that no other beats in both chain and cost, by rising chain.

    The chain is taken over the path that is longest with fastest modes; tasks beside it take
    their cheapest mode. Both only lower the result.
    """
    path = _longest_path(digest, row)
    beside = [t for t in row if t not in path]
    cheapest = {
        t: min(digest.tasks[t].modes, key=lambda m: prices[m.kind] * m.area_us) for t in beside
    }
    base = sum(prices[m.kind] * m.area_us for m in cheapest.values())
    fronts: dict[Mode, list[Pick]] = {}
    for step, t in enumerate(path):
        grown: dict[Mode, list[Pick]] = {}
        for mode in digest.tasks[t].modes:
            cost = prices[mode.kind] * mode.area_us
            picks = [Pick(mode.least_us, base + cost, (mode,))] if step == 0 else []
            for before, front in fronts.items():
                wait = digest.least_handoff_us(t, before, mode) + mode.least_us
                picks += [Pick(p.chain_us + wait, p.cost + cost, (*p.modes, mode)) for p in front]
            grown[mode] = _undominated(picks)
        fronts = grown
    best = _undominated([p for front in fronts.values() for p in front])
    return [_with_all(p, row, path, cheapest) for p in best]


def _with_all(
    pick: Pick, row: Sequence[int], path: Sequence[int], cheapest: dict[int, Mode]
) -> Pick:
    chosen = {**dict(zip(path, pick.modes, strict=True)), **cheapest}
    return Pick(pick.chain_us, pick.cost, tuple(chosen[t] for t in row))


def _undominated(picks: list[Pick]) -> list[Pick]:
    out: list[Pick] = []
    for pick in sorted(picks, key=lambda p: p[:2]):
        if not out or pick.cost < out[-1].cost:
            out.append(pick)
    return out


def _longest_path(digest: Digest, row: Sequence[int]) -> list[int]:
    """Tasks of the heaviest path through a cascade, first to last."""
    length: dict[int, int] = {}
    before: dict[int, int | None] = {}
    for t in row:
        task = digest.tasks[t]
        last = max(task.predecessors, key=length.__getitem__, default=None)
        before[t] = last
        fastest = min(m.least_us for m in task.modes)
        length[t] = fastest + (length[last] if last is not None else 0)
    at: int | None = max(row, key=length.__getitem__)
    path = []
    while at is not None:
        path.append(at)
        at = before[at]
    return path[::-1]
