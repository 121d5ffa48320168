"""Concrete devices for a group: on one node where that is as early, else on aligned NIC groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from arachne_opt.solvers.cascade.digest import Digest, FlatNode, Mode
from arachne_opt.units import scale_up

# Groups over several nodes are sought among this many of the emptiest nodes, at this many times.
_NODES_TRIED = 6
_TIMES_TRIED = 5
# When devices are free that a task may not use: later than anything ends.
_NEVER_US = 1 << 60


class Choice(NamedTuple):
    """A group for a task with its times; ``waste_us`` is the idle device time that it leaves."""

    end_us: int
    waste_us: int
    start_us: int
    devices: tuple[int, ...]


def free_for(digest: Digest, task: int, free: Sequence[int]) -> Sequence[int]:
    """When each device is free for a task: never, where a pin keeps the task from it."""
    allowed = digest.tasks[task].allowed
    if allowed is None:
        return free
    return [us if d in allowed else _NEVER_US for d, us in enumerate(free)]


def best_group(digest: Digest, free: Sequence[int], ready_us: int, mode: Mode) -> Choice:
    """The group of a mode that ends first, given when each device is free: see ``free_for``.

    Equal ends are decided by the idle time before the start: devices that become free last are
    taken first, so that those free early stay for others.
    """
    best: Choice | None = None
    for node in digest.nodes:
        if node.kind == mode.kind and node.size >= mode.degree:
            choice = node_group(node, free, ready_us, mode)
            if best is None or choice < best:
                best = choice
    if mode.degree > 1 and len(digest.nodes) > 1:
        across = cross_node_group(digest, free, ready_us, mode, best)
        if across is not None and (best is None or across < best):
            best = across
    assert best is not None  # usable modes are never wider than the devices of their type
    return best


def node_group(node: FlatNode, free: Sequence[int], ready_us: int, mode: Mode) -> Choice:
    """The best group on one node that is large enough."""
    ordered = sorted(node.devices, key=free.__getitem__)
    degree = mode.degree
    start = max(ready_us, free[ordered[degree - 1]])
    upto = degree
    while upto < len(ordered) and free[ordered[upto]] <= start:
        upto += 1
    group = sorted(ordered[upto - degree : upto])
    waste = degree * start - sum(free[d] for d in group)
    return Choice(start + mode.duration_us, waste, start, tuple(group))


def cross_node_group(
    digest: Digest, free: Sequence[int], ready_us: int, mode: Mode, best: Choice | None
) -> Choice | None:
    """The best group over several nodes that ends before ``best``."""
    times = sorted([free[d] for d in digest.devices_of_kind[mode.kind]])
    quickest = scale_up(mode.duration_us, digest.mildest_ppm)
    # When each node has a free device first; not needed where one node does as well.
    firsts: list[tuple[int, FlatNode]] = []
    for tried, start in enumerate(_starts(times[mode.degree - 1 :], ready_us)):
        if best is not None and (tried >= _TIMES_TRIED or start + quickest >= best.end_us):
            break
        firsts = firsts or [
            (min([free[d] for d in node.devices]), node)
            for node in digest.nodes
            if node.kind == mode.kind
        ]
        nodes = [node for first, node in firsts if first <= start]
        group = _aligned_group(nodes, free, start, mode.degree)
        if group is None:
            continue
        end = start + scale_up(mode.duration_us, digest.penalty_ppm(group))
        waste = mode.degree * start - sum([free[d] for d in group])
        choice = Choice(end, waste, start, group)
        if best is None or choice < best:
            best = choice
    return best


def _starts(times: Sequence[int], ready_us: int) -> Iterator[int]:
    """When a group may start: as soon as it is ready, and whenever more devices become free."""
    last = -1
    for time in times:
        start = max(ready_us, time)
        if start != last:
            last = start
            yield start


def _aligned_group(
    nodes: Sequence[FlatNode], free: Sequence[int], start_us: int, degree: int
) -> tuple[int, ...] | None:
    """A group over nodes among the devices free at a time, with the mildest penalty found."""
    rooms = []
    for node in nodes:
        rails = {}
        for nic, row in node.by_nic:
            if open_ := [d for d in row if free[d] <= start_us]:
                if len(open_) > 1:
                    open_.sort(key=free.__getitem__, reverse=True)
                rails[nic] = open_
        rooms.append((sum(map(len, rails.values())), rails))
    rooms.sort(key=lambda room: -room[0])
    for rails_of in _node_sets(rooms, degree):
        group = _aligned(rails_of, degree)
        if group is not None:
            return group
    return _any_group(rooms, degree)


_Room = tuple[int, dict[int, list[int]]]


def _node_sets(rooms: list[_Room], degree: int) -> Iterator[list[dict[int, list[int]]]]:
    """Sets of nodes with enough room: few nodes first, the emptiest among them first."""
    least, total = 0, 0
    for size, _ in rooms:
        if total >= degree:
            break
        total += size
        least += 1
    if total < degree:
        return
    for count in range(max(2, least), max(2, least) + 2):
        width = max(_NODES_TRIED, count)
        for chosen in combinations(rooms[:width], count):
            if sum(size for size, _ in chosen) >= degree:
                yield [rails for _, rails in chosen]
            if count > _NODES_TRIED:
                break


def _aligned(rails_of: list[dict[int, list[int]]], degree: int) -> tuple[int, ...] | None:
    """Devices of equal NIC groups on every node, None where the degree does not fit so."""
    shared = set.intersection(*(set(rails) for rails in rails_of))
    room = {nic: sum(len(rails[nic]) for rails in rails_of) for nic in shared}
    ordered = sorted(shared, key=lambda nic: (-room[nic], nic))
    total, used = 0, 0
    while used < len(ordered) and total < degree:
        total += room[ordered[used]]
        used += 1
    if total < degree or used * len(rails_of) > degree:
        return None
    # One device of each NIC group on each node first: they decide the overlap.
    group = [rails[nic][0] for nic in ordered[:used] for rails in rails_of]
    spare = [d for nic in ordered[:used] for rails in rails_of for d in rails[nic][1:]]
    return tuple(sorted(group + spare[: degree - len(group)]))


def _any_group(rooms: list[_Room], degree: int) -> tuple[int, ...] | None:
    """Devices of the emptiest nodes, whatever their NIC groups; None where too few are free."""
    pool = [d for _, rails in rooms for row in rails.values() for d in row]
    return tuple(sorted(pool[:degree])) if len(pool) >= degree else None


def place_in_order(
    digest: Digest, items: Iterable[tuple[int, tuple[tuple[int, int], ...]]]
) -> list[tuple[int, tuple[int, ...]]]:
    """Devices for tasks with given counts per node, one task after the other."""
    free = [0] * digest.device_count
    ends = [0] * len(digest.tasks)
    groups: list[tuple[int, ...]] = [()] * len(digest.tasks)
    runs = []
    for i, place in items:
        task = digest.tasks[i]
        start = max((ends[p] for p in task.predecessors), default=0)
        for n, count in place:
            times = sorted(free[d] for d in digest.nodes[n].devices)
            start = max(start, times[count - 1])
        offers = [spread_group(digest, free, start, place)]
        if task.input_bytes and len(place) == 1:
            held = {d for p in task.predecessors for d in groups[p]}
            offers.append(_reusing_group(digest, free, start, place[0], held))
        found = [(_end_us(digest, i, free, ends, groups, devices), devices) for devices in offers]
        ends[i], groups[i] = min(found)
        for d in groups[i]:
            free[d] = ends[i]
        runs.append((i, groups[i]))
    return runs


def _reusing_group(
    digest: Digest, free: Sequence[int], start_us: int, share: tuple[int, int], held: set[int]
) -> tuple[int, ...]:
    """Devices of one node that hold the input already, then those that became free last."""
    node, count = share
    devices = sorted(
        digest.nodes[node].devices,
        key=lambda d: (free[d] > start_us, d not in held, abs(start_us - free[d]), d),
    )
    return tuple(sorted(devices[:count]))


def _end_us(
    digest: Digest,
    i: int,
    free: Sequence[int],
    ends: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    devices: tuple[int, ...],
) -> int:
    start = max(free[d] for d in devices)
    for p in digest.tasks[i].predecessors:
        start = max(start, ends[p] + digest.handoff_us(i, groups[p], devices))
    return start + digest.duration_us(i, devices)


def spread_group(
    digest: Digest, free: Sequence[int], start_us: int, place: Sequence[tuple[int, int]]
) -> tuple[int, ...]:
    """Devices for given counts per node, free at a time as far as possible, NIC groups aligned.

    On one node the devices that became free last are taken. On several the same NIC groups are
    used on each, if devices allow.
    """
    rows = []
    for n, count in place:
        ordered = sorted(digest.nodes[n].devices, key=free.__getitem__)
        usable = [d for d in ordered if free[d] <= start_us]
        usable = usable if len(usable) >= count else ordered[:count]
        rows.append((count, sorted(usable, key=lambda d: (-free[d], d))))
    if len(rows) == 1:
        return tuple(sorted(rows[0][1][: rows[0][0]]))
    group = _aligned_counts(digest, rows)
    return group or tuple(sorted(d for count, row in rows for d in row[:count]))


def _aligned_counts(
    digest: Digest, rows: Sequence[tuple[int, list[int]]]
) -> tuple[int, ...] | None:
    """Devices with given counts per node on equal NIC groups, None where that cannot be."""
    rails_of: list[dict[int, list[int]]] = []
    for _, row in rows:
        rails: dict[int, list[int]] = {}
        for d in row:
            rails.setdefault(digest.nic_of[d], []).append(d)
        rails_of.append(rails)
    shared = sorted(set.intersection(*(set(rails) for rails in rails_of)))
    fewest = min(count for count, _ in rows)
    for used in range(1, min(len(shared), fewest) + 1):
        for nics in combinations(shared, used):
            rooms = [sum(len(rails[nic]) for nic in nics) for rails in rails_of]
            if all(room >= count for room, (count, _) in zip(rooms, rows, strict=True)):
                return _fill(rows, rails_of, nics)
    return None


def _fill(
    rows: Sequence[tuple[int, list[int]]],
    rails_of: Sequence[dict[int, list[int]]],
    nics: Sequence[int],
) -> tuple[int, ...]:
    group: list[int] = []
    for (count, _), rails in zip(rows, rails_of, strict=True):
        first = [rails[nic][0] for nic in nics]
        spare = [d for nic in nics for d in rails[nic][1:]]
        group += first + spare[: count - len(first)]
    return tuple(sorted(group))
