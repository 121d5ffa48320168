"""Modes of tasks as rows of numbers, and exact schedules of tasks whose nodes are chosen.

Groups over several nodes are charged the mildest penalty at first; ``realise`` then finds concrete
devices and exact times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.cpsat.alignment import Timed, aligned_runs
from arachne_opt.solvers.cascade.digest import Digest, FlatTask, Mode, Where
from arachne_opt.solvers.cascade.placement import place_in_order
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order, left_shift
from arachne_opt.units import US_PER_S, scale_up


class Line(NamedTuple):
    """A mode as the decoder reads it."""

    degree: int
    duration_us: int
    cross_us: int
    nodes: tuple[int, ...]
    mode: Mode


class Lags(NamedTuple):
    """Hand-offs to a mode by the number of its devices that hold the input already."""

    near: tuple[int, ...]
    far: tuple[int, ...]


class FastDecoder:
    """Times and devices for chosen modes and nodes of one problem; see the module."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest
        self.sizes = [node.size for node in digest.nodes]
        self.modes = [self._lines(task) for task in digest.tasks]
        self.predecessors = [task.predecessors for task in digest.tasks]
        self._nic_size = max(len(row) for node in digest.nodes for _, row in node.by_nic)
        self.waits = digest.has_handoff
        self._lags_of = [
            [self._lags(i, line) for line in lines] if self.waits else []
            for i, lines in enumerate(self.modes)
        ]
        self._shares: dict[tuple[int, int, int], list[int]] = {}

    def _lines(self, task: FlatTask) -> list[Line]:
        """Modes that no narrower and no slower mode of the same type replaces."""
        nodes = [
            tuple(n.index for n in self.digest.nodes if n.kind == k)
            for k in range(len(self.digest.kind_names))
        ]
        return [
            Line(m.degree, m.duration_us, self._cross_us(m), nodes[m.kind], m)
            for m in useful_modes(task)
        ]

    def _cross_us(self, mode: Mode) -> int:
        return scale_up(mode.duration_us, self.digest.mildest_ppm)

    def _lags(self, i: int, line: Line) -> Lags:
        """Hand-offs by devices that hold the input, inside a node and between nodes."""
        cluster, size = self.digest.problem.cluster, self.digest.tasks[i].input_bytes
        return Lags(
            *(
                tuple(
                    link.latency_us
                    + -(-size * missing * US_PER_S // (line.degree * link.bandwidth_bytes_per_s))
                    if size and missing
                    else 0
                    for missing in range(line.degree, -1, -1)
                )
                for link in (cluster.nodes[line.nodes[0]].intra_link, cluster.inter_link)
            )
        )

    def ends_us(
        self, order: Sequence[int], picks: Sequence[int], where: Sequence[Where]
    ) -> list[int]:
        """Ends of all tasks, each on its nodes as early as it can be in this order."""
        free = [[0] * size for size in self.sizes]
        ends = [0] * len(self.modes)
        for i in order:
            line, place = self.modes[i][picks[i]], where[i]
            start = max([ends[p] for p in self.predecessors[i]], default=0)
            if self.waits and start:
                start = self._arrival(i, picks[i], ends, where, place)
            start = max(start, *[free[node][count - 1] for node, count in place])
            end = start + (line.duration_us if len(place) == 1 else line.cross_us)
            for node, count in place:
                row = free[node]
                upto = bisect_right(row, start)
                row[upto - count : upto] = [end] * count
                row.sort()
            ends[i] = end
        return ends

    def _arrival(
        self, i: int, pick: int, ends: Sequence[int], where: Sequence[Where], place: Where
    ) -> int:
        """When the inputs are there, with as many of the producers' devices reused as can be."""
        latest = 0
        near, far = self._lags_of[i][pick]
        for p in self.predecessors[i]:
            before = where[p]
            if len(before) == 1 and len(place) == 1:
                # The common case, without the dictionaries of the general one.
                (node, count), (other, held) = place[0], before[0]
                lag = near[min(count, held)] if node == other else far[0]
            else:
                here = dict(place)
                kept = sum(min(count, here.get(node, 0)) for node, count in before)
                inside = {node for node, _ in before} >= here.keys()
                lag = (near if inside else far)[kept]
            if ends[p] + lag > latest:
                latest = ends[p] + lag
        return latest

    def shares_of(self, degree: int, size_a: int, size_b: int) -> list[int]:
        """Shares of the first node with which equal NIC groups on both are possible."""
        key = degree, size_a, size_b
        if key not in self._shares:
            fair = range(max(1, degree - size_b), min(degree - 1, size_a) + 1)
            shares = [a for a in fair if self._can_align((a, degree - a))]
            self._shares[key] = sorted(shares, key=lambda a: abs(2 * a - degree))
        return self._shares[key]

    def _can_align(self, counts: Sequence[int]) -> bool:
        """Whether so many devices of each node can be on equal NIC groups."""
        return max(counts) <= self._nic_size * min(counts)

    def realise(
        self, order: Sequence[int], picks: Sequence[int], where: Sequence[Where]
    ) -> Schedule:
        """The exact schedule on concrete devices.

        Where devices taken one task after the other do not align, a fit for all is sought.
        """
        ends = self.ends_us(order, picks, where)
        runs = place_in_order(self.digest, [(i, where[i]) for i in order])
        schedule = in_start_order(self.digest, left_shift(self.digest, runs))
        if schedule.makespan_us <= max(ends):
            return schedule
        items = []
        for i in order:
            line = self.modes[i][picks[i]]
            span = line.duration_us if len(where[i]) == 1 else line.cross_us
            items.append(Timed(i, where[i], ends[i] - span, ends[i]))
        aligned = aligned_runs(self.digest, items)
        if aligned is None:
            return schedule
        other = in_start_order(self.digest, left_shift(self.digest, aligned))
        return min(schedule, other, key=lambda s: s.key)

    def picks_of(self, schedule: Schedule) -> list[int]:
        """The modes of a schedule."""
        picks = [0] * len(schedule.runs)
        for i, devices in schedule.runs:
            picks[i] = self.pick_of(i, len(devices), self.digest.kind_of[devices[0]])
        return picks

    def pick_of(self, task: int, degree: int, kind: int) -> int:
        """The pick of the widest mode up to a degree on a type, 0 where there is none."""
        fitting = [
            k
            for k, line in enumerate(self.modes[task])
            if line.mode.kind == kind and line.degree <= degree
        ]
        return fitting[-1] if fitting else 0


def useful_modes(task: FlatTask) -> list[Mode]:
    """Modes of a task without those that a narrower, no slower one of the same type replaces."""
    return [
        m
        for m in task.modes
        if not any(
            o.kind == m.kind and o.degree < m.degree and o.duration_us <= m.duration_us
            for o in task.modes
        )
    ]
