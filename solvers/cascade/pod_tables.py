"""What the batched search of pods reads: shapes of cascades on the nodes of a pod, as flat arrays.

Axes: k shape, x task of a shape (shapes with fewer tasks begin with empty ones), m mode, s site.
A *site* is a set of nodes with about equal shares of a group: one node, two nodes or all of them.
Times are in ticks: microseconds, or more where 32 bits would not hold a makespan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from arachne_opt.solvers.cascade.bounds import Pick
from arachne_opt.solvers.cascade.decoder import FastDecoder, Line
from arachne_opt.solvers.cascade.digest import Digest, Where
from arachne_opt.solvers.cascade.list_schedule import cascade_fronts

Ints = npt.NDArray[np.int64]
Ticks = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

# A start that never comes; all sums of times stay below it.
NEVER = 1 << 30
# Makespans must be shorter than NEVER / 4: two such times are added at most.
_LONGEST_TICKS = NEVER >> 2


class PodTables:
    """Tables of shapes on a pod's nodes; the last shape is an empty one that fills short pods.

    Args:
        part: the pod's nodes with one cascade of each shape, in the order of the shapes.
        most_cascades: cascades that a pod has at most.
    """

    def __init__(self, part: Digest, most_cascades: int) -> None:
        self._decoder = FastDecoder(part)
        self._rows = part.cascades
        nodes = range(len(part.nodes))
        self.sizes = self._decoder.sizes
        self.sites: list[tuple[int, ...]] = [(n,) for n in nodes]
        self.sites += combinations(nodes, 2)
        if len(nodes) > 2:
            self.sites.append(tuple(nodes))
        self.shapes = len(self._rows)
        self.tasks = max(map(len, self._rows))
        # Modes that some site has room for, as the decoder counts them.
        self._picks = [
            [m for m, line in enumerate(lines) if self._fitting(line)]
            for lines in self._decoder.modes
        ]
        self.mode_count = max(1, max(map(len, self._picks)))
        # Which sites [site, other] are part of others.
        self._inside = np.array([[{*t} >= {*s} for t in self.sites] for s in self.sites])
        self._counts_of: dict[int, Ints] = {}
        self.tick_us = self._tick_us(most_cascades)
        self._make_arrays()
        for k, row in enumerate(self._rows):
            for x, i in self._local(row):
                self._fill(k, x, i)
        self.fronts = [self._front(k, front) for k, front in enumerate(cascade_fronts(part))]

    def _tick_us(self, most_cascades: int) -> int:
        longest = max(
            sum(max(line.cross_us for line in self._decoder.modes[i]) for i in row)
            for row in self._rows
        )
        return 1 + 2 * longest * most_cascades // _LONGEST_TICKS

    def _make_arrays(self) -> None:
        """Empty tasks take no device and no time, on the first node."""
        s = len(self.sites)
        kx = (self.shapes + 1, self.tasks)
        kxm = (*kx, self.mode_count)
        self.mode_counts: Ints = np.ones(kx, np.int64)
        # Degree of a mode; devices of each node of a site, and how many nodes have one more.
        self.degree: Ints = np.zeros(kxm, np.int64)
        self.share: Ints = np.zeros((*kxm, s), np.int64)
        self.more: Ints = np.zeros((*kxm, s), np.int64)
        self.duration: Ticks = np.zeros((*kxm, s), np.int32)
        # The site for a wished one, where the last wish leaves the choice of the node open.
        self.resolved: Ints = np.zeros((*kxm, s + 1), np.int64)
        # Which task comes before: its place in the shape, or one behind the last for none.
        most = max(1, max(len(p) for p in self._decoder.predecessors))
        self.before: list[Ints] = [np.full(kx, self.tasks, np.int64) for _ in range(most)]
        # Hand-off from a mode and site of the task before; NEVER where a site is not possible.
        self.lag: list[Ticks] = [
            np.zeros((*kxm, s, self.mode_count, s), np.int32) for _ in range(most)
        ]

    def _local(self, row: Sequence[int]) -> list[tuple[int, int]]:
        return list(enumerate(row, self.tasks - len(row)))

    def _fill(self, k: int, x: int, i: int) -> None:
        """The arrays of one task."""
        place = {j: x for x, j in self._local(self._rows[k])}
        for p, before in enumerate(self._decoder.predecessors[i]):
            self.before[p][k, x] = place[before]
        self.mode_counts[k, x] = max(1, len(self._picks[i]))
        for m, line in enumerate(self._lines(i)):
            self.degree[k, x, m] = line.degree
            fitting = self._fitting(line)
            self.lag[0][k, x, m, [s for s in range(len(self.sites)) if s not in fitting]] = NEVER
            for s in fitting:
                span_us = line.duration_us if len(self.sites[s]) == 1 else line.cross_us
                self.duration[k, x, m, s] = -(-span_us // self.tick_us)
                self.share[k, x, m, s], self.more[k, x, m, s] = divmod(
                    line.degree, len(self.sites[s])
                )
            self._resolve(k, x, m, fitting)
            if self._decoder.waits:
                self._fill_lags(k, x, i, m, fitting)

    def _lines(self, i: int) -> list[Line]:
        return [self._decoder.modes[i][m] for m in self._picks[i]]

    def _fitting(self, line: Line) -> list[int]:
        """Sites with room for a group whose shares can be on equal NIC groups."""

        def fits(nodes: tuple[int, ...]) -> bool:
            shares = _shares(line.degree, len(nodes))
            room = all(
                n in line.nodes and share <= self.sizes[n]
                for n, share in zip(nodes, shares, strict=True)
            )
            return room and self._decoder.can_align(shares)

        return [s for s, nodes in enumerate(self.sites) if fits(nodes)]

    def _resolve(self, k: int, x: int, m: int, fitting: Sequence[int]) -> None:
        """Wishes that cannot be had leave the node open, or take one of the wide sites."""
        choice = len(self.sites)
        wide = [s for s in fitting if len(self.sites[s]) > 1]
        for wish in range(choice + 1):
            if wish in fitting:
                self.resolved[k, x, m, wish] = wish
            elif len(wide) < len(fitting) or not wide:
                self.resolved[k, x, m, wish] = choice
            else:
                self.resolved[k, x, m, wish] = wide[wish % len(wide)]

    def _fill_lags(self, k: int, x: int, i: int, m: int, fitting: Sequence[int]) -> None:
        """Hand-offs by the devices that both groups have, as the decoder counts them."""
        near, far = (np.array(lags) for lags in self._decoder.lags_of(i, self._picks[i][m]))
        here = self._counts(int(self.degree[k, x, m]))
        for p, before in enumerate(self._decoder.predecessors[i]):
            held = [self._counts(line.degree) for line in self._lines(before)]
            if not held:
                continue
            # By site, and mode and site of the task before.
            kept = np.minimum(here[fitting, None, None], np.array(held)).sum(axis=3)
            lags = np.where(self._inside[fitting, None], near[kept], far[kept])
            self.lag[p][k, x, m, fitting, : len(held)] = -(-lags // self.tick_us)

    def _counts(self, degree: int) -> Ints:
        """Devices of every node [site, node] that a group of a degree has at each site."""
        if degree not in self._counts_of:
            counts: Ints = np.zeros((len(self.sites), len(self.sizes)), np.int64)
            for s, nodes in enumerate(self.sites):
                counts[s, list(nodes)] = _shares(degree, len(nodes))
            self._counts_of[degree] = counts
        return self._counts_of[degree]

    def _front(self, k: int, picks: Sequence[Pick]) -> tuple[Ints, Ints, Ints]:
        """Undominated picks of a shape by rising chain: chains, modes, and what is left by task."""
        part, row = self._decoder.digest, self._rows[k]
        front = sorted(picks, key=lambda pick: pick.chain_us)
        modes = np.zeros((len(front), self.tasks), np.int64)
        tails = np.zeros((len(front), self.tasks), np.int64)
        for f, pick in enumerate(front):
            spans = dict(zip(row, pick.modes, strict=True))
            tail: dict[int, int] = {}
            for x, i in reversed(self._local(row)):
                mode = spans[i]
                after = max((tail[j] for j in part.tasks[i].successors), default=0)
                tail[i] = mode.least_us + after
                modes[f, x] = self._mode_of(i, self._decoder.pick_of(i, mode.degree, mode.kind))
                tails[f, x] = tail[i]
        return np.array([pick.chain_us for pick in front]), modes, tails

    def _mode_of(self, i: int, pick: int) -> int:
        """The widest mode here up to one of the decoder's."""
        return max(0, sum(m <= pick for m in self._picks[i]) - 1)

    def has_room(self, shape: int) -> bool:
        """Whether every task of a shape fits some site."""
        return all(self._picks[i] for i in self._rows[shape])

    def pick(self, shape: int, task: int, mode: int) -> int | None:
        """The decoder's number of a mode, None for an empty task."""
        at = task - self.tasks + len(self._rows[shape])
        return self._picks[self._rows[shape][at]][mode] if at >= 0 else None

    def mode(self, shape: int, task: int, degree: int, kind: int) -> int:
        """The mode of a degree on a device type, -1 where there is none."""
        lines = self._lines(self._rows[shape][task - self.tasks + len(self._rows[shape])])
        alike = [m for m, n in enumerate(lines) if (n.degree, n.mode.kind) == (degree, kind)]
        return alike[0] if alike else -1

    def site(self, place: Where) -> int:
        """The site of a group by nodes; the one that leaves the choice open where there is none."""
        nodes = tuple(n for n, _ in place)
        if nodes not in self.sites:
            return len(self.sites)
        site = self.sites.index(nodes)
        alike = self.place(sum(count for _, count in place), site) == place
        return site if alike else len(self.sites)

    def place(self, degree: int, site: int) -> Where:
        """Nodes and devices of a group at a site."""
        nodes = self.sites[site]
        return tuple(zip(nodes, _shares(degree, len(nodes)), strict=True))


def _shares(degree: int, nodes: int) -> tuple[int, ...]:
    """Devices of each node, about equal; the first nodes have one more."""
    share, more = divmod(degree, nodes)
    return (share + 1,) * more + (share,) * (nodes - more)
