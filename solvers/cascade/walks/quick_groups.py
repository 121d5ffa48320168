"""Groups of devices for quick list schedules: a node is a row of integers, a group a few masks.

A *slot* is the time at which a device is free, and behind it, in as many bits as the largest node
has devices, the bit of the device in its node. Slots of a node stay sorted, the lower bits of their
sum are the set of their devices, and the upper ones the sum of their times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain, combinations
from typing import NamedTuple

from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.walks.choice import ANYWHERE, Group
from arachne_opt.units import scale_up

# Slots of a node in rising order.
Row = list[int]

# Groups over several nodes are sought among this many of the emptiest nodes, at this many times.
_NODES_TRIED = 4
_TIMES_TRIED = 5
_NEVER_US = 1 << 62
_REMEMBERED = 1 << 16  # sets of free devices for which the aligned group is kept


class Offer(NamedTuple):
    """A group for a task: its start, its time with the penalty, and the idle time it leaves."""

    start_us: int
    span_us: int
    waste_us: int
    group: Group


class QuickGroups:
    """Finds the group where a task ends first, as ``placement.best_group`` does, but sooner.

    Among nodes where it ends equally early it looks less closely at what idles, and of devices of
    one NIC group on one of several nodes it takes any, not the one free last.

    Args:
        nodes: that may be used, in rising order; None for all.
    """

    def __init__(self, digest: Digest, nodes: Sequence[int] | None = None) -> None:
        self._digest = digest
        self._shift = max(node.size for node in digest.nodes)
        self._low = (1 << self._shift) - 1
        kinds = range(len(digest.kind_names))
        usable = digest.nodes if nodes is None else [digest.nodes[n] for n in nodes]
        self.device_count = sum(node.size for node in usable)
        self._of_kind = [[n.index for n in usable if n.kind == k] for k in kinds]
        self.nodes = tuple(chain.from_iterable(self._of_kind))
        # Nodes of each type with room for a degree.
        self._wide = [
            [
                [n for n in self._of_kind[k] if digest.nodes[n].size >= degree]
                for degree in range(self._shift + 1)
            ]
            for k in kinds
        ]
        layouts: dict[tuple[int, ...], int] = {}
        nics = [tuple(digest.nic_of[d] for d in node.devices) for node in digest.nodes]
        self._layout = [layouts.setdefault(row, len(layouts)) << self._shift for row in nics]
        self._nic_count = 1 + max(map(max, nics))
        self._rails = [
            [sum(1 << b for b, nic in enumerate(row) if nic == k) for k in range(self._nic_count)]
            for row in nics
        ]
        self._bits = [tuple(1 << b for b in range(node.size)) for node in digest.nodes]
        self._known: dict[tuple[int, ...], tuple[int, ...] | None] = {}
        self._quickest: dict[Mode, int] = {}

    def rows(self) -> list[Row]:
        """All devices free from the start on."""
        return [list(bits) for bits in self._bits]

    def devices(self, group: Group) -> tuple[int, ...]:
        """The devices of a group in rising order."""
        nodes = self._digest.nodes
        return tuple(
            d
            for n, mask in group
            for d, bit in zip(nodes[n].devices, self._bits[n], strict=True)
            if mask & bit
        )

    def occupy(self, rows: list[Row], group: Group, end_us: int) -> None:
        """Makes a group free from a time on; rows are replaced, never changed."""
        ended = end_us << self._shift
        for n, mask in group:
            row = [slot for slot in rows[n] if not slot & mask]
            row += [ended | bit for bit in self._bits[n] if bit & mask]
            row.sort()
            rows[n] = row

    def best(
        self, rows: list[Row], ready_us: int, mode: Mode, site: int = ANYWHERE
    ) -> Offer | None:
        """The group where a task ends first; of several nodes one that has had enough room last.

        On a site that has the devices it is there. None where all nodes have too few devices.
        """
        degree, kind = mode.degree, mode.kind
        if site >= 0 and degree <= self._shift and site in self._wide[kind][degree]:
            return self._on_node(rows, [site], ready_us, mode)
        found = None
        before_us = _NEVER_US
        if degree <= self._shift and (wide := self._wide[kind][degree]):
            found = self._on_node(rows, wide, ready_us, mode)
            before_us = found.start_us + mode.duration_us
        if degree > 1 and len(self._of_kind[kind]) > 1:
            quickest_us = self._quickest_us(mode)
            if ready_us + quickest_us < before_us:
                found = self._across(rows, ready_us, mode, before_us, quickest_us) or found
        return found

    def fits(self, mode: Mode, group: Group) -> bool:
        """Whether a group is of these nodes, and as a mode wants it."""
        of_kind, count = self._of_kind[mode.kind], sum(mask.bit_count() for _, mask in group)
        return count == mode.degree and all(
            n in of_kind and not mask >> len(self._bits[n]) for n, mask in group
        )

    def held(self, rows: list[Row], ready_us: int, mode: Mode, group: Group) -> Offer:
        """A group once its devices are free."""
        free_us = self._free_us(rows, group)
        start_us = max(ready_us, *free_us)
        span_us = mode.duration_us if len(group) == 1 else self._span_us(mode, group)
        waste_us = mode.degree * start_us - sum(free_us)
        return Offer(start_us, span_us, waste_us, group)

    def _on_node(self, rows: list[Row], wide: list[int], ready_us: int, mode: Mode) -> Offer:
        degree, shift = mode.degree, self._shift
        lasts = [rows[n][degree - 1] for n in wide]
        latest = min(lasts)
        start_us = max(latest >> shift, ready_us)
        bound = (start_us + 1) << shift
        if latest < ready_us << shift:
            latest = max([slot for slot in lasts if slot < bound])
        chosen = wide[lasts.index(latest)]
        row = rows[chosen]
        upto = bisect_left(row, bound, degree)
        total = sum(row[upto - degree : upto])
        waste_us = degree * start_us - (total >> shift)
        return Offer(start_us, mode.duration_us, waste_us, ((chosen, total & self._low),))

    def _quickest_us(self, mode: Mode) -> int:
        """Time of a mode on several nodes with the mildest penalty."""
        known = self._quickest.get(mode)
        if known is None:
            known = scale_up(mode.duration_us, self._digest.mildest_ppm)
            self._quickest[mode] = known
        return known

    def _across(
        self, rows: list[Row], ready_us: int, mode: Mode, before_us: int, quickest_us: int
    ) -> Offer | None:
        """The best group over several nodes that ends before a time."""
        degree, nodes, found = mode.degree, self._of_kind[mode.kind], None
        least_us = before_us - quickest_us
        for tried, start_us in enumerate(self._starts(rows, nodes, degree, ready_us, least_us)):
            if before_us < _NEVER_US and tried >= _TIMES_TRIED:
                break
            group, aligned = self._free_group(rows, nodes, start_us, degree)
            span_us = quickest_us if aligned else self._span_us(mode, group)
            if start_us + span_us < before_us:
                before_us = start_us + span_us
                waste_us = degree * start_us - sum(self._free_us(rows, group))
                found = Offer(start_us, span_us, waste_us, group)
            if start_us + quickest_us >= before_us:
                break
        return found

    def _starts(
        self, rows: list[Row], nodes: list[int], degree: int, ready_us: int, before_us: int
    ) -> Iterator[int]:
        """When a group may start before a time: once it is ready, and when more are free."""
        shift = self._shift
        now, end = (ready_us + 1) << shift, before_us << shift
        if sum([bisect_left(rows[n], now) for n in nodes]) >= degree:
            yield ready_us
        elif sum([bisect_left(rows[n], end) for n in nodes]) < degree:
            return
        last_us = ready_us
        for slot in sorted(chain.from_iterable([rows[n] for n in nodes]))[degree - 1 :]:
            start_us = slot >> shift
            if start_us >= before_us:
                return
            if start_us > last_us:
                last_us = start_us
                yield start_us

    def _free_us(self, rows: list[Row], group: Group) -> list[int]:
        """When each device of a group is free."""
        shift = self._shift
        return [slot >> shift for n, mask in group for slot in rows[n] if slot & mask]

    def _span_us(self, mode: Mode, group: Group) -> int:
        ppm = self._digest.penalty_ppm(self.devices(group))
        return scale_up(mode.duration_us, ppm)

    def _free_group(
        self, rows: list[Row], nodes: Sequence[int], start_us: int, degree: int
    ) -> tuple[Group, bool]:
        """A group among the devices free at a time, and whether its NIC groups are aligned."""
        bound = (start_us + 1) << self._shift
        rooms = sorted([(-upto, n) for n in nodes if (upto := bisect_left(rows[n], bound))])
        for chosen in _node_sets(rooms, degree):
            masks = self._aligned(
                [(n, sum(rows[n][:-size]) & self._low) for size, n in chosen], degree
            )
            if masks is not None:
                pairs = [(n, mask) for (_, n), mask in zip(chosen, masks, strict=True)]
                return tuple(sorted(pairs)), True
        return self._any(rows, rooms, degree), False

    def _any(self, rows: list[Row], rooms: list[tuple[int, int]], degree: int) -> Group:
        """Devices of the emptiest nodes, whatever their NIC groups."""
        pairs, left = [], degree
        for size, n in rooms:
            count = min(left, -size)
            pairs.append((n, sum(rows[n][-size - count : -size]) & self._low))
            left -= count
            if left == 0:
                break
        return tuple(sorted(pairs))

    def _aligned(self, free: list[tuple[int, int]], degree: int) -> tuple[int, ...] | None:
        """Devices on equal NIC groups of each node, None where the degree does not fit so."""
        key = (degree, *[self._layout[n] | mask for n, mask in free])
        try:
            return self._known[key]
        except KeyError:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._align(free, degree)
            return found

    def _align(self, free: list[tuple[int, int]], degree: int) -> tuple[int, ...] | None:
        count = len(free)
        shared = []
        for nic in range(self._nic_count):
            parts = [mask & self._rails[n][nic] for n, mask in free]
            if all(parts):
                shared.append((-sum([p.bit_count() for p in parts]), nic, parts))
        shared.sort()
        total, used = 0, 0
        while used < len(shared) and total < degree:
            total -= shared[used][0]
            used += 1
        if total < degree or used * count > degree:
            return None
        # One device of each NIC group on each node first: they decide the overlap.
        rails = [parts for _, _, parts in shared[:used]]
        masks = [sum([parts[k] & -parts[k] for parts in rails]) for k in range(count)]
        left = degree - used * count
        for parts in rails:
            for k, part in enumerate(parts):
                spare = part & (part - 1)
                while spare and left:
                    masks[k] |= spare & -spare
                    spare &= spare - 1
                    left -= 1
        return tuple(masks)


def _node_sets(rooms: list[tuple[int, int]], degree: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sets of nodes with enough room: few nodes first, the emptiest among them first."""
    least, total = 0, 0
    for size, _ in rooms:
        if total >= degree:
            break
        total -= size
        least += 1
    least = max(2, least)
    for count in (least, least + 1):
        for chosen in combinations(rooms[: max(_NODES_TRIED, count)], count):
            if -sum([size for size, _ in chosen]) >= degree:
                yield chosen
            if count > _NODES_TRIED:
                break
