"""Decomposition for large clusters: pods of nodes with their own cascades, traded between pods.

Each pod is a small problem of its own. Cascades are dealt out by device time; then the slowest pod
is searched, trades cascades with another or is joined with it, as long as that shortens it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from enum import Enum

from arachne_opt.solvers.cascade.annealing import Spent
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_solver import Pod, PodSolver
from arachne_opt.solvers.cascade.schedule import Run, Schedule, in_start_order, left_shift

# From here on problems are cut into pods.
_LARGE_NODES, _LARGE_CASCADES = 8, 14
# Devices that a pod should have, and how often its widest needed group must fit into it.
_POD_DEVICES = 16
_WIDEST_TIMES = 2
_MERGED_TIMES = 2
# Swaps tried per cascade to level the pods before any search.
_SWAPS = 200
# Pairs of cascades looked at for one trade.
_PAIRS = 24
# Share of attempts that search the slowest pod again; of the others of one pod every so many-th
# joins it with another.
_AGAIN_SHARE, _STUCK = 0.05, 10

# Starts the clock of a search of so many tasks.
Begin = Callable[[int], Spent]


class Way(Enum):
    """What an attempt does with the slowest pod and another."""

    AGAIN = "again"
    TRADE = "trade"
    JOIN = "join"


def is_large(digest: Digest) -> bool:
    """Whether a problem is better cut into pods."""
    return len(digest.nodes) >= _LARGE_NODES and len(digest.cascades) >= _LARGE_CASCADES


class Pods:
    """The pods of a problem."""

    def __init__(self, digest: Digest, target_us: int, seed: int) -> None:
        self._digest = digest
        self._random = random.Random(seed)
        self._solver = PodSolver(digest, target_us, seed)
        self._most_devices = 0
        self._asked: dict[Pod, int] = {}
        self.pods: list[Pod] = []

    def start(self) -> None:
        """Deals nodes and cascades into pods with list schedules; none where one fits no pod."""
        self.pods = [self._solver.quick(nodes, cascades) for nodes, cascades in self._deal()]

    def _deal(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Nodes and cascades per pod: cascades by falling device time to the least loaded pod."""
        groups = self._node_groups()
        room = [sum(self._digest.nodes[n].size for n in group) for group in groups]
        load = [0.0] * len(groups)
        rows: list[list[int]] = [[] for _ in groups]
        area = self._solver.area
        for c in sorted(range(len(area)), key=lambda c: (-area[c], c)):
            able = [g for g in range(len(groups)) if self._solver.can_run(groups[g], c)]
            if not able:
                return []
            g = min(able, key=lambda g: (load[g], g))
            rows[g].append(c)
            load[g] += area[c] / room[g]
        self._level(groups, rows, load, room)
        return [(group, tuple(row)) for group, row in zip(groups, rows, strict=True) if row]

    def _level(
        self,
        groups: Sequence[tuple[int, ...]],
        rows: list[list[int]],
        load: list[float],
        room: Sequence[int],
    ) -> None:
        """Swaps random cascades of two groups as long as that levels their loads.

        A swap is kept where it lowers the sum of squares of the loads.
        """
        area, draw, can_run = self._solver.area, self._random, self._solver.can_run
        for _ in range(_SWAPS * len(area)):
            a, b = draw.randrange(len(rows)), draw.randrange(len(rows))
            if a == b or not rows[a] or not rows[b]:
                continue
            i, k = draw.randrange(len(rows[a])), draw.randrange(len(rows[b]))
            c, d = rows[a][i], rows[b][k]
            more_a, more_b = (area[d] - area[c]) / room[a], (area[c] - area[d]) / room[b]
            change = more_a * (2 * load[a] + more_a) + more_b * (2 * load[b] + more_b)
            if change < 0 and can_run(groups[a], d) and can_run(groups[b], c):
                rows[a][i], rows[b][k] = d, c
                load[a] += more_a
                load[b] += more_b

    def _node_groups(self) -> list[tuple[int, ...]]:
        """Nodes of every type dealt in turn, so that all pods have about the same mix."""
        digest = self._digest
        widest = max(min(m.degree for m in task.modes) for task in digest.tasks)
        devices = max(_POD_DEVICES, _WIDEST_TIMES * widest)
        self._most_devices = _MERGED_TIMES * devices
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

    def replace(self, old: Sequence[Pod], fresh: Sequence[Pod]) -> None:
        """Puts new pods in the place of old ones."""
        self.pods = [pod for pod in self.pods if pod not in old] + list(fresh)

    def next_attempt(self, busy: Collection[Pod] = ()) -> tuple[Way, tuple[Pod, ...]] | None:
        """What to try next with the slowest pod that is not busy; None where nothing is left."""
        idle = sorted(
            (pod for pod in self.pods if pod not in busy), key=lambda pod: pod.makespan_us
        )
        if not idle:
            return None
        slow = idle.pop()
        draw = self._random.random()
        if slow.fresh or not idle or draw < _AGAIN_SHARE:
            return Way.AGAIN, (slow,)
        other = idle[int(len(idle) * self._random.random() ** 2)]
        self._asked[slow] = self._asked.get(slow, 0) + 1
        stuck = self._asked[slow] % _STUCK == 0
        return (Way.JOIN if stuck else Way.TRADE), (slow, other)

    def improved(self, way: Way, old: Sequence[Pod], begin: Begin) -> tuple[Pod, ...] | None:
        """Pods for the place of others, all faster than the slowest of these; None if not."""
        if way is Way.AGAIN:
            return self._again(old[0], begin)
        return (self._joined if way is Way.JOIN else self._traded)(old[0], old[1], begin)

    def _again(self, pod: Pod, begin: Begin) -> tuple[Pod, ...] | None:
        return self._solver.again(pod, begin(len(pod.runs)))

    def _traded(self, slow: Pod, other: Pod, begin: Begin) -> tuple[Pod, ...] | None:
        rows = self._exchange(slow, other)
        if rows is None:
            return None
        made: list[Pod] = []
        for pod, row in zip((slow, other), rows, strict=True):
            spent = begin(len(pod.runs))
            better = self._solver.better(pod.nodes, row, spent, pod.runs, slow.makespan_us)
            if better is None:
                return None
            made.append(better)
        return tuple(made)

    def _joined(self, a: Pod, b: Pod, begin: Begin) -> tuple[Pod, ...] | None:
        nodes = tuple(sorted({*a.nodes, *b.nodes}))
        if sum(self._digest.nodes[n].size for n in nodes) > self._most_devices:
            return None
        runs = sorted((*a.runs, *b.runs), key=lambda run: self._position(a, b, run))
        cascades = (*a.cascades, *b.cascades)
        made = self._solver.better(nodes, cascades, begin(len(runs)), runs, a.makespan_us)
        return None if made is None else (made,)

    def _position(self, a: Pod, b: Pod, run: Run) -> tuple[float, int]:
        runs = a.runs if run in a.runs else b.runs
        return runs.index(run) / len(runs), run[0]

    def _exchange(self, slow: Pod, other: Pod) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Both pods' cascades after the most levelling of some random exchanges.

        None where all of them have been searched in vain.
        """
        area = self._solver.area
        devices = sum(self._digest.nodes[n].size for n in slow.nodes)
        price = 1000 if len(self._digest.kind_names) == 1 else 1500
        wish = (slow.makespan_us - other.makespan_us) * devices * price / 2
        wish *= self._random.uniform(0.0, 1.5)
        swaps = [self._swap(slow, other) for _ in range(_PAIRS)]

        def miss(swap: tuple[set[int], set[int]]) -> float:
            given, taken = swap
            return abs(sum(area[c] for c in given) - sum(area[c] for c in taken) - wish)

        for given, taken in sorted(swaps, key=miss):
            left = tuple({*slow.cascades} - given | taken)
            right = tuple({*other.cascades} - taken | given)
            rows = ((slow.nodes, left), (other.nodes, right))
            if left and not any(self._solver.in_vain(*row, slow.makespan_us) for row in rows):
                return left, right
        return None

    def _swap(self, slow: Pod, other: Pod) -> tuple[set[int], set[int]]:
        """One or two cascades of the slow pod for up to as many of the other."""
        give = min(self._random.choice((1, 1, 2)), len(slow.cascades))
        take = min(self._random.choice((give, give, give - 1)), len(other.cascades))
        given = self._random.sample(slow.cascades, give)
        return set(given), set(self._random.sample(other.cascades, take))
