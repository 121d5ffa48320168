"""A fast decoder for local search: free times per node, devices of a node interchangeable.

A *state* is an order of the tasks, a mode and a site for each. The decoder places one task after
the other on the node (or nodes) where it starts first. Groups over several nodes are charged the
mildest penalty here; ``realise`` then finds concrete devices and exact times.
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

# Sites: a node's number forces that node, a larger one the nodes of ``FastDecoder.site_of``.
ONE_NODE = -1  # the node where the task starts first
TWO_NODES = -2  # any two nodes, unequal shares allowed
MANY_NODES = -3  # equal shares on three or more nodes


class State(NamedTuple):
    """A point of the search space; ``picks`` are indices into ``FastDecoder.modes``."""

    order: list[int]
    picks: list[int]
    sites: list[int]


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
    """Decodes states of one problem; see the module."""

    def __init__(self, digest: Digest) -> None:
        self.digest = digest
        self.sizes = [node.size for node in digest.nodes]
        self._kind_of_node = [node.kind for node in digest.nodes]
        self.modes = [self._lines(task) for task in digest.tasks]
        self.predecessors = [task.predecessors for task in digest.tasks]
        self._nic_size = max(len(row) for node in digest.nodes for _, row in node.by_nic)
        self.waits = digest.has_handoff
        self._lags_of = [
            [self._lags(i, line) for line in lines] if self.waits else []
            for i, lines in enumerate(self.modes)
        ]
        self._shares: dict[tuple[int, int, int], list[int]] = {}
        # Shares of nodes that schedules were seen to use, and the degree of each.
        self._spread: list[tuple[int, Where]] = []
        self._site_of_spread: dict[Where, int] = {}

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

    def lags_of(self, task: int, pick: int) -> Lags:
        """Hand-offs to a mode of a task, where any hand-off takes time."""
        return self._lags_of[task][pick]

    def decode(
        self, state: State, fixed: Sequence[Where] | None = None
    ) -> tuple[list[int], list[Where]]:
        """Ends and places of all tasks in the order; fixed places overrule the sites."""
        order, picks, sites = state
        modes, predecessors, sizes, waits = self.modes, self.predecessors, self.sizes, self.waits
        spread, count_nodes = self._spread, len(self.sizes)
        free = [[0] * size for size in sizes]
        ends = [0] * len(modes)
        where: list[Where] = [()] * len(modes)
        for i in order:
            line = modes[i][picks[i]]
            ready = 0
            for p in predecessors[i]:
                if ends[p] > ready:
                    ready = ends[p]
            degree, site = line.degree, sites[i]
            if fixed is not None:
                place: Where = fixed[i]
            elif site >= count_nodes:
                held, place = spread[site - count_nodes]
                if held != degree or place[0][0] not in line.nodes:
                    wide = TWO_NODES if len(place) == 2 else MANY_NODES
                    place = self._across(free, line, ready, wide)
            elif site >= 0 and degree <= sizes[site] and site in line.nodes:
                place = ((site, degree),)
            elif site >= ONE_NODE:
                place = self._one_node(free, line, ready)
            else:
                place = self._across(free, line, ready, site)
            if waits and ready:
                ready = self._arrival(i, picks[i], ends, where, place)
            start = ready
            for node, count in place:
                if free[node][count - 1] > start:
                    start = free[node][count - 1]
            end = start + (line.duration_us if len(place) == 1 else line.cross_us)
            for node, count in place:
                row = free[node]
                upto = bisect_right(row, start)
                row[upto - count : upto] = [end] * count
                row.sort()
            ends[i] = end
            where[i] = place
        return ends, where

    def _arrival(self, i: int, pick: int, ends: list[int], where: list[Where], place: Where) -> int:
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

    def _one_node(self, free: list[list[int]], line: Line, ready: int) -> Where:
        """The node where the task starts first; of equals the one that loses least idle time."""
        degree = line.degree
        start, waste, best = 1 << 62, -1, -1
        for node in line.nodes:
            row = free[node]
            if len(row) < degree:
                continue
            at = row[degree - 1]
            if at < ready:
                at = ready
            if at < start:
                start, waste, best = at, -1, node
            elif at == start:
                if waste < 0:
                    waste = _idle(free[best], degree, start)
                lost = _idle(row, degree, start)
                if lost < waste:
                    waste, best = lost, node
        if best >= 0:
            return ((best, degree),)
        return self._across(free, line, ready, TWO_NODES)

    def _across(self, free: list[list[int]], line: Line, ready: int, site: int) -> Where:
        """Nodes for a group over several of them; one node where there is no such group."""
        if line.degree == 1 or len(line.nodes) == 1:
            return self._one_node(free, line, ready)
        if site == TWO_NODES:
            place = self._two_nodes(free, line, ready)
            if place:
                return place
        return self._many_nodes(free, line, 3)

    def _two_nodes(self, free: list[list[int]], line: Line, ready: int) -> Where:
        degree, nodes = line.degree, line.nodes
        start = 1 << 62
        best: Where = ()
        for k, a in enumerate(nodes):
            row_a = free[a]
            for b in nodes[k + 1 :]:
                row_b = free[b]
                for share in self.shares_of(degree, len(row_a), len(row_b)):
                    at = row_a[share - 1]
                    if row_b[degree - share - 1] > at:
                        at = row_b[degree - share - 1]
                    if at < start:
                        start = at
                        best = ((a, share), (b, degree - share))
                        if at <= ready:
                            return best
        return best

    def shares_of(self, degree: int, size_a: int, size_b: int) -> list[int]:
        """Shares of the first node with which equal NIC groups on both are possible."""
        key = degree, size_a, size_b
        if key not in self._shares:
            fair = range(max(1, degree - size_b), min(degree - 1, size_a) + 1)
            shares = [a for a in fair if self.can_align((a, degree - a))]
            self._shares[key] = sorted(shares, key=lambda a: abs(2 * a - degree))
        return self._shares[key]

    def can_align(self, counts: Sequence[int]) -> bool:
        """Whether so many devices of each node can be on equal NIC groups."""
        return max(counts) <= self._nic_size * min(counts)

    def _many_nodes(self, free: list[list[int]], line: Line, least: int) -> Where:
        """Equal shares on as few nodes as hold them, or as many devices as each node has."""
        degree, nodes = line.degree, line.nodes
        for count in range(least, len(nodes) + 1):
            share, rest = divmod(degree, count)
            if share == 0 or rest:
                continue
            wide = [n for n in nodes if len(free[n]) >= share]
            if len(wide) >= count:
                wide.sort(key=lambda n: free[n][share - 1])
                return tuple((n, share) for n in sorted(wide[:count]))
        place, left = [], degree
        for node in sorted(nodes, key=lambda n: (-len(free[n]), free[n][-1])):
            take = min(left, len(free[node]))
            if take:
                place.append((node, take))
            left -= take
        return tuple(sorted(place))

    def realise(self, state: State, ends: Sequence[int], where: Sequence[Where]) -> Schedule:
        """The exact schedule of a decoded state on concrete devices.

        Where devices taken one task after the other do not align, a fit for all is sought.
        """
        runs = place_in_order(self.digest, [(i, where[i]) for i in state.order])
        schedule = in_start_order(self.digest, left_shift(self.digest, runs))
        if schedule.makespan_us <= max(ends):
            return schedule
        items = []
        for i in state.order:
            line = self.modes[i][state.picks[i]]
            span = line.duration_us if len(where[i]) == 1 else line.cross_us
            items.append(Timed(i, where[i], ends[i] - span, ends[i]))
        aligned = aligned_runs(self.digest, items)
        if aligned is None:
            return schedule
        other = in_start_order(self.digest, left_shift(self.digest, aligned))
        return min(schedule, other, key=lambda s: s.key)

    def state_of(self, schedule: Schedule) -> State:
        """A state that decodes to the given schedule, at the mildest penalties."""
        order = [i for i, _ in schedule.runs]
        picks, sites = [0] * len(order), [ONE_NODE] * len(order)
        for i, devices in schedule.runs:
            kind = self.digest.kind_of[devices[0]]
            picks[i] = self.pick_of(i, len(devices), kind)
            nodes = [self.digest.node_of[d] for d in devices]
            sites[i] = self.site_of(tuple((n, nodes.count(n)) for n in sorted(set(nodes))))
        return State(order, picks, sites)

    def site_of(self, place: Where) -> int:
        """The site that puts a task on these nodes, as long as it has this degree."""
        if len(place) == 1:
            return place[0][0]
        site = self._site_of_spread.get(place)
        if site is None:
            site = len(self.sizes) + len(self._spread)
            self._spread.append((sum(count for _, count in place), place))
            self._site_of_spread[place] = site
        return site

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


def _idle(row: list[int], degree: int, start: int) -> int:
    upto = bisect_right(row, start)
    return degree * start - sum(row[upto - degree : upto])
