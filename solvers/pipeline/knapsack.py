"""The best set of columns by dynamic programming over devices, for few types of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints


@dataclass(frozen=True, slots=True)
class Sack:
    """Columns as numbers: what each takes of the devices and which samples it trains."""

    used: Ints
    samples: Ints


def fill(
    sack: Sack, cells: Ints, wanted: int, most: int, over: Callable[[], bool]
) -> list[tuple[int, ...]]:
    """Sets of columns (with repetition) that train at least the samples wanted.

    best[k, d] = max over columns c of best[k - 1, d - used(c)] + samples(c): for each number k of
    columns that reaches what is wanted the set that trains most, the one of fewest columns first.

    Args:
        sack: the columns.
        cells: devices of each place.
        wanted: least samples of a set.
        most: most columns of a set.
        over: ends the search at sets of fewer columns.
    """
    order = _efficient(sack)
    # Rounded to whole units a column may take more than there is.
    order = order[(sack.used[order] <= cells).all(axis=1)]
    used, samples = sack.used[order], sack.samples[order]
    shape = tuple((cells + 1).tolist())
    best = np.zeros(shape, dtype=np.int64)
    choices: list[Ints] = []
    found = []
    for _ in range(most):
        if over():
            break
        after = np.full(shape, -1, dtype=np.int64)
        choice = np.full(shape, -1, dtype=np.int64)
        for c, (need, gain) in enumerate(zip(used.tolist(), samples.tolist(), strict=True)):
            target = tuple(slice(n, None) for n in need)
            source = tuple(slice(None, size - n) for size, n in zip(shape, need, strict=True))
            here = best[source]
            total = np.where(here >= 0, here + gain, -1)
            better = total > after[target]
            after[target][better] = total[better]
            choice[target][better] = c
        choices.append(choice)
        best = after
        if best.flat[-1] >= wanted:
            picked = _trace(choices, used, cells)
            found.append(tuple(int(order[c]) for c in picked))
    return found


def _trace(choices: list[Ints], used: Ints, cells: Ints) -> list[int]:
    at, picked = cells.copy(), []
    for choice in reversed(choices):
        c = int(choice[tuple(at)])
        picked.append(c)
        at = at - used[c]
    return picked


def _efficient(sack: Sack) -> Ints:
    """Columns that no other one matches with no more devices."""
    order = np.lexsort((sack.used.sum(axis=1), -sack.samples))
    kept: list[int] = []
    for c in order.tolist():
        if sack.samples[c] <= 0:
            break
        if not kept or not (sack.used[kept] <= sack.used[c]).all(axis=1).any():
            kept.append(c)
    return np.array(kept, dtype=np.int64)


def sizes(used: Ints, limits: Ints, most_cells: int) -> tuple[Ints, Ints]:
    """Devices of columns and of the cluster in units that keep the table small."""
    unit: Floats = np.ones(len(limits))
    while np.prod(limits // unit + 1) > most_cells:
        unit[np.argmax(limits // unit)] *= 2
    whole = unit.astype(np.int64)
    return -(-used // whole), limits // whole
