"""The best set of columns by dynamic programming over devices, for few types of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints

_SMALL = 100_000  # columns times cells that are looked at together


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
    step = (
        _Gather(used, samples, cells) if _is_small(used, cells) else _Slices(used, samples, cells)
    )
    best = np.zeros(tuple((cells + 1).tolist()), dtype=np.int64)
    choices: list[Ints] = []
    found = []
    for _ in range(most):
        if over() or not len(order):
            break
        best, choice = step.after(best)
        choices.append(choice)
        if best.flat[-1] >= wanted:
            picked = _trace(choices, used, cells)
            found.append(tuple(int(order[c]) for c in picked))
    return found


class _Gather:
    """One more column, for all cells and columns at once: quick on small tables."""

    def __init__(self, used: Ints, samples: Ints, cells: Ints) -> None:
        shape = tuple((cells + 1).tolist())
        at = np.indices(shape).reshape(len(shape), -1).T
        before = at[None] - used[:, None]
        fits = (before >= 0).all(axis=2)
        strides = np.array([int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
        # What does not fit comes from a last cell that no set reaches.
        self._before = np.where(fits, before @ strides, len(at))
        self._samples = samples[:, None]

    def after(self, best: Ints) -> tuple[Ints, Ints]:
        """Most samples with one more column, and which it is; -1 where there is none."""
        from_ = np.append(best.ravel(), -1)[self._before]
        total = np.where(from_ >= 0, from_ + self._samples, -1)
        choice = total.argmax(axis=0)
        after = np.take_along_axis(total, choice[None], axis=0)[0]
        return after.reshape(best.shape), np.where(after >= 0, choice, -1).reshape(best.shape)


class _Slices:
    """The same column by column, without a table of all columns and cells."""

    def __init__(self, used: Ints, samples: Ints, cells: Ints) -> None:
        shape = tuple((cells + 1).tolist())
        self._steps = [
            (
                tuple(slice(n, None) for n in need),
                tuple(slice(None, size - n) for size, n in zip(shape, need, strict=True)),
                gain,
            )
            for need, gain in zip(used.tolist(), samples.tolist(), strict=True)
        ]

    def after(self, best: Ints) -> tuple[Ints, Ints]:
        """Most samples with one more column, and which it is; -1 where there is none."""
        after, choice = np.full_like(best, -1), np.full_like(best, -1)
        for c, (target, source, gain) in enumerate(self._steps):
            here = best[source]
            total = np.where(here >= 0, here + gain, -1)
            better = total > after[target]
            after[target][better] = total[better]
            choice[target][better] = c
        return after, choice


def _is_small(used: Ints, cells: Ints) -> bool:
    return len(used) * int(np.prod(cells + 1)) <= _SMALL


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
