"""Decomposition for large clusters: pods of nodes with their own cascades, traded between pods.

Each pod is a small problem of its own. Cascades are dealt out by device time and levelled; then
the slow pods trade cascades with others, many trades at a time, as long as that shortens them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.cpsat.pod_master import Column, best_cover
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_solver import Pod, PodSolver, Site, Spent, Wanted
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order, left_shift

# Devices that a pod should have, and how often its widest needed group must fit into it.
_POD_DEVICES = 16
_WIDEST_TIMES = 2
# Swaps tried per cascade to level the pods before any search.
_SWAPS = 200
# Exchanges looked at for one trade; one is promising where this share of a typical makespan for its
# load is below the limit.
_PAIRS, _SLACK = 24, 0.98
# Share of the pods that are slow enough to trade, and of attempts that search a pod again.
_SLOW_SHARE, _AGAIN_SHARE = 0.25, 0.1


class Trade(NamedTuple):
    """Pods, the slowest first, and those that take their place if all become faster than it."""

    old: tuple[Pod, ...]
    wanted: tuple[Wanted, ...]


class Pods:
    """The pods of a problem.

    Args:
        target_us: makespan that is good enough.
    """

    def __init__(self, digest: Digest, target_us: int, seed: int) -> None:
        self._digest = digest
        self._random = random.Random(seed)
        self._solver = PodSolver(digest, target_us, seed)
        # Makespan over load of a typical pod.
        self._waste = 1.0
        # Masters are tried every so many times; times until the next one.
        self._wait, self._rest = 1, 0
        self.pods: list[Pod] = []

    def _deal(self) -> tuple[Site, ...]:
        """Nodes and cascades of every pod; none where a cascade fits no pod.

        Cascades go by falling device time to the least loaded pod.
        """
        groups = self._node_groups()
        room = [sum(self._digest.nodes[n].size for n in group) for group in groups]
        load = [0.0] * len(groups)
        rows: list[list[int]] = [[] for _ in groups]
        area = self._solver.area
        for c in sorted(range(len(area)), key=lambda c: (-area[c], c)):
            able = [g for g in range(len(groups)) if self._solver.can_run(groups[g], c)]
            if not able:
                return ()
            g = min(able, key=lambda g: (load[g], g))
            rows[g].append(c)
            load[g] += area[c] / room[g]
        self._level(groups, rows, load, room)
        pairs = zip(groups, rows, strict=True)
        return tuple(self._solver.site(group, row) for group, row in pairs if row)

    def _level(
        self,
        groups: Sequence[tuple[int, ...]],
        rows: list[list[int]],
        load: list[float],
        room: Sequence[int],
    ) -> None:
        """Swaps random cascades of two groups as long as that levels their loads.

        A swap is kept where it lowers the sum over the groups of room times the square of load.
        """
        area, draw, can_run = self._solver.area, self._random, self._solver.can_run
        for _ in range(_SWAPS * len(area)):
            a, b = draw.randrange(len(rows)), draw.randrange(len(rows))
            if a == b or not rows[a] or not rows[b]:
                continue
            i, k = draw.randrange(len(rows[a])), draw.randrange(len(rows[b]))
            c, d = rows[a][i], rows[b][k]
            more = area[d] - area[c]
            more_a, more_b = more / room[a], -more / room[b]
            change = more * (2 * load[a] + more_a - 2 * load[b] - more_b)
            if change < 0 and can_run(groups[a], d) and can_run(groups[b], c):
                rows[a][i], rows[b][k] = d, c
                load[a] += more_a
                load[b] += more_b

    def _node_groups(self) -> list[tuple[int, ...]]:
        """Nodes of every type dealt in turn, so that all pods have about the same mix."""
        digest = self._digest
        widest = max(min(m.degree for m in task.modes) for task in digest.tasks)
        devices = max(_POD_DEVICES, _WIDEST_TIMES * widest)
        count = max(1, digest.device_count // devices)
        ordered = sorted(digest.nodes, key=lambda n: (n.kind, -n.size, n.index))
        groups: list[list[int]] = [[] for _ in range(count)]
        for at, node in enumerate(ordered):
            groups[at % count].append(node.index)
        return [tuple(sorted(group)) for group in groups]

    @property
    def makespan_us(self) -> int:
        """Makespan of the slowest pod."""
        return max(pod.makespan_us for pod in self.pods)

    def schedule(self) -> Schedule:
        """The schedule of the whole problem: all pods side by side."""
        runs = [run for pod in self.pods for run in pod.runs]
        return in_start_order(self._digest, left_shift(self._digest, runs))

    def begin(self, spent: Spent) -> None:
        """Deals nodes and cascades out and makes the pods; none where a cascade fits no pod."""
        made = self._solver.solve([Wanted(site) for site in self._deal()], spent)
        self.pods = [pod for pod in made if pod is not None]

    def trades(self, count: int) -> list[Trade]:
        """Up to so many things to try with the slow pods."""
        ordered = sorted(self.pods, key=lambda pod: -pod.makespan_us)
        waste = sorted(pod.makespan_us / self._load(pod.site) for pod in ordered)
        self._waste = waste[len(waste) // 2]
        slow = max(1, round(_SLOW_SHARE * len(ordered)))
        places = [int(slow * self._random.random() ** 2) for _ in range(count)]
        tried = [self._trade(ordered, at) for at in places]
        return [trade for trade in tried if trade is not None]

    def _load(self, site: Site) -> float:
        """Device time of the cascades over the devices."""
        devices = sum(self._digest.nodes[n].size for n in site.nodes)
        return sum(self._solver.area[c] for c in site.cascades) / devices

    def _trade(self, ordered: Sequence[Pod], at: int) -> Trade | None:
        """A trade of a slow pod with a faster one, or another search of it."""
        slow, others = ordered[at], ordered[at + 1 :]
        again = not self._solver.in_vain(slow.site, slow.makespan_us)
        if again and (not others or self._random.random() < _AGAIN_SHARE):
            return Trade((slow,), (Wanted(slow.site, slow.makespan_us, slow),))
        if not others:
            return None
        other = others[-1 - int(len(others) * self._random.random() ** 2)]
        sites = self._exchange(slow, other)
        if sites is None:
            return None
        pairs = zip(sites, (slow, other), strict=True)
        return Trade((slow, other), tuple(Wanted(s, slow.makespan_us, old) for s, old in pairs))

    def search(self, trades: Sequence[Trade], spent: Spent) -> list[Pod | None]:
        """For each pod that the trades want one that is fast enough, None where none was found."""
        return self._solver.solve([want for trade in trades for want in trade.wanted], spent)

    def remember(self, trades: Sequence[Trade], found: Sequence[Pod | None]) -> None:
        """Notes what ``search`` has found in another process."""
        wanted = (want for trade in trades for want in trade.wanted)
        for want, pod in zip(wanted, found, strict=True):
            self._solver.remember(want, pod)

    def settle(self, trades: Sequence[Trade], found: Sequence[Pod | None]) -> None:
        """Does the trades whose pods were all found, those of the slowest pods first."""
        rest = iter(found)
        done = []
        for trade in trades:
            fresh = [next(rest) for _ in trade.wanted]
            made = [pod for pod in fresh if pod is not None]
            if len(made) == len(fresh):
                done.append((trade.old, made))
        done.sort(key=lambda d: (-d[0][0].makespan_us, max(pod.makespan_us for pod in d[1])))
        for old, made in done:
            # An earlier one may have taken its pods.
            if all(pod in self.pods for pod in old):
                self.pods = [pod for pod in self.pods if pod not in old] + made

    def _exchange(self, slow: Pod, other: Pod) -> tuple[Site, Site] | None:
        """Both pods' sites after the first promising one of some random exchanges.

        None where there is none that has not been searched in vain.
        """
        for _ in range(_PAIRS):
            given, taken = self._swap(slow.site, other.site)
            left = {*slow.site.cascades} - given | taken
            right = {*other.site.cascades} - taken | given
            sites = (
                self._solver.site(slow.site.nodes, left),
                self._solver.site(other.site.nodes, right),
            )
            if left and self._worth(sites, slow.makespan_us):
                return sites
        return None

    def _worth(self, sites: Sequence[Site], limit_us: int) -> bool:
        """Whether sites can be run, are not too full, and have not been searched in vain."""
        for site in sites:
            if self._load(site) * self._waste * _SLACK > limit_us:
                return False
            if not all(self._solver.can_run(site.nodes, c) for c in site.cascades):
                return False
            if self._solver.in_vain(site, limit_us):
                return False
        return True

    def recombine(self) -> float:
        """Puts pods that are known together anew where that is faster; tells the work spent."""
        if self._rest > 0:
            self._rest -= 1
            return 0.0
        floors = Counter(self._solver.floor(pod.site) for pod in self.pods)
        of_shape: dict[int, list[int]] = {}
        for c, shape in enumerate(self._digest.shape_of_cascade):
            of_shape.setdefault(shape, []).append(c)
        counts = {shape: len(row) for shape, row in of_shape.items()}
        known = self._solver.columns(self.makespan_us, self.pods)
        columns = [c for c in known if c.floor in floors]
        cover = best_cover(columns, floors, counts, self._random.randrange(1 << 30))
        # Masters that take long are tried less often each time.
        self._wait = 1 if cover.done else 2 * self._wait
        self._rest = self._wait - 1
        if cover.uses is not None:
            self.pods = self._covering(columns, cover.uses, of_shape)
        return cover.work

    def _covering(
        self, columns: Sequence[Column], uses: Sequence[int], of_shape: Mapping[int, list[int]]
    ) -> list[Pod]:
        """Pods for the columns of a cover, with nodes and cascades of this problem."""
        nodes: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for pod in self.pods:
            nodes.setdefault(self._solver.floor(pod.site), []).append(pod.site.nodes)
        out = []
        for column, count in zip(columns, uses, strict=True):
            for _ in range(count):
                cascades = [of_shape[shape].pop() for shape in column.shapes]
                site = self._solver.site(nodes[column.floor].pop(), cascades)
                known = self._solver.known(Wanted(site))
                assert known is not None
                out.append(known)
        return out

    def _swap(self, slow: Site, other: Site) -> tuple[set[int], set[int]]:
        """One or two cascades of the slow pod for up to as many of the other."""
        give = min(self._random.choice((1, 1, 2)), len(slow.cascades))
        take = min(self._random.choice((give, give, give - 1)), len(other.cascades))
        given = self._random.sample(slow.cascades, give)
        return set(given), set(self._random.sample(other.cascades, take))
