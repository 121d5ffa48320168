"""Exact packing of groups of devices into nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise


def pack(groups: Sequence[int], free: Sequence[int]) -> tuple[int, ...] | None:
    """The node of every group, None where they cannot all be packed.

    Largest first into the tightest node packs whatever can be packed as long as each size divides
    the next larger one; other sizes are searched.

    Args:
        groups: devices of each group, which must share a node.
        free: free devices of each node.
    """
    if any(size < 1 for size in groups):
        raise AssertionError("a group has at least one device")
    found = _tightest(groups, free)
    sizes = sorted(set(groups))
    if found is not None or all(b % a == 0 for a, b in pairwise(sizes)):
        return found
    return _searched(groups, free)


def _tightest(groups: Sequence[int], free: Sequence[int]) -> tuple[int, ...] | None:
    left, node_of = list(free), [0] * len(groups)
    for g in sorted(range(len(groups)), key=lambda g: -groups[g]):
        fits = [n for n, room in enumerate(left) if room >= groups[g]]
        if not fits:
            return None
        node_of[g] = min(fits, key=left.__getitem__)
        left[node_of[g]] -= groups[g]
    return tuple(node_of)


def _searched(groups: Sequence[int], free: Sequence[int]) -> tuple[int, ...] | None:
    """Node by node, the multiset of sizes that it takes; nodes of equal room are alike."""
    sizes = sorted(set(groups), reverse=True)
    counts = tuple(sum(g == size for g in groups) for size in sizes)
    nodes = sorted(range(len(free)), key=lambda n: -free[n])
    room = [free[n] for n in nodes]
    spare = [sum(room[i:]) for i in range(len(room) + 1)]

    @cache
    def fill(at: int, todo: tuple[int, ...]) -> tuple[tuple[int, ...], ...] | None:
        if not any(todo):
            return ()
        need = sum(n * size for n, size in zip(todo, sizes, strict=True))
        if at == len(room) or need > spare[at]:
            return None
        for taken in _choices(room[at], todo, sizes):
            rest = tuple(n - t for n, t in zip(todo, taken, strict=True))
            later = fill(at + 1, rest)
            if later is not None:
                return (taken, *later)
        return None

    plan = fill(0, counts)
    if plan is None:
        return None
    places: dict[int, list[int]] = {size: [] for size in sizes}
    for node, taken in zip(nodes, plan, strict=False):
        for size, n in zip(sizes, taken, strict=True):
            places[size] += [node] * n
    return tuple(places[size].pop() for size in groups)


def _choices(room: int, todo: tuple[int, ...], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """What a node may take, fullest first; only choices to which nothing can be added."""
    found: list[tuple[int, ...]] = []

    def extend(at: int, left: int, taken: tuple[int, ...]) -> None:
        if at == len(sizes):
            rest = [n - t for n, t in zip(todo, taken, strict=True)]
            if not any(n and size <= left for n, size in zip(rest, sizes, strict=True)):
                found.append(taken)
            return
        for n in range(min(todo[at], left // sizes[at]), -1, -1):
            extend(at + 1, left - n * sizes[at], (*taken, n))

    extend(0, room, ())
    return sorted(found, key=lambda taken: -sum(n * s for n, s in zip(taken, sizes, strict=True)))
