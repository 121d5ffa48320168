"""Decomposition for large clusters: pods of nodes with their own cascades, traded between pods.

Each pod is a small problem of its own. Cascades are dealt out by device time, every pod is
annealed, and then the slowest pod trades cascades with others as long as that shortens it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.annealing import Annealer, Cooling, Spent
from arachne_opt.solvers.cascade.bounds import Pick, lower_bound
from arachne_opt.solvers.cascade.decoder import ONE_NODE, TWO_NODES, FastDecoder, State
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.list_schedule import cascade_fronts, list_schedules
from arachne_opt.solvers.cascade.schedule import Run, Schedule, in_start_order, left_shift

# From here on problems are cut into pods.
_LARGE_NODES, _LARGE_CASCADES = 10, 14
# Devices that a pod should have, and how often its widest needed group must fit into it.
_POD_DEVICES = 16
_WIDEST_TIMES = 2
_MERGED_TIMES = 3
# A trade that comes below the limit by this factor needs no more search.
_CLEARLY = 0.985
# List schedules tried as the first start of a pod.
_LISTS = 6
# Pairs of cascades looked at for one trade.
_PAIRS = 24
_COOLING = Cooling(hot=0.01, cold=0.0005, across=0.1)

# Starts the clock of the annealing of so many tasks.
Begin = Callable[[int], Spent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Nodes with their cascades and the schedule of these, in the numbers of the whole problem."""

    nodes: tuple[int, ...]
    cascades: tuple[int, ...]
    runs: tuple[Run, ...]
    makespan_us: int


def is_large(digest: Digest) -> bool:
    """Whether a problem is better cut into pods."""
    return len(digest.nodes) >= _LARGE_NODES and len(digest.cascades) >= _LARGE_CASCADES


class Pods:
    """The pods of a problem."""

    def __init__(self, digest: Digest, target_us: int, seed: int) -> None:
        self._digest = digest
        self._target_us = target_us
        self._random = random.Random(seed)
        self._seed = seed
        self._picks = [self._pick(front) for front in cascade_fronts(digest)]
        self._area = [pick.cost for pick in self._picks]
        self._most_devices = 0
        self.pods: list[Pod] = []

    def _pick(self, front: Sequence[Pick]) -> Pick:
        fitting = [pick for pick in front if pick.chain_us <= self._target_us]
        return fitting[-1] if fitting else front[0]

    def start(self, begin: Begin) -> None:
        """Deals nodes and cascades into pods and anneals each; none where one fits no pod."""
        for nodes, cascades in self._deal():
            tasks = sum(len(self._digest.cascades[c]) for c in cascades)
            pod = self._solve(nodes, cascades, begin(tasks))
            assert pod is not None  # cascades are dealt to pods that can run them
            self.pods.append(pod)

    def _deal(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Nodes and cascades per pod: cascades by falling device time to the least loaded pod."""
        groups = self._node_groups()
        room = [sum(self._digest.nodes[n].size for n in group) for group in groups]
        load = [0.0] * len(groups)
        rows: list[list[int]] = [[] for _ in groups]
        for c in sorted(range(len(self._area)), key=lambda c: (-self._area[c], c)):
            able = [g for g in range(len(groups)) if self._can_run(groups[g], c)]
            if not able:
                return []
            g = min(able, key=lambda g: (load[g], g))
            rows[g].append(c)
            load[g] += self._area[c] / room[g]
        return [(group, tuple(row)) for group, row in zip(groups, rows, strict=True) if row]

    def _can_run(self, nodes: tuple[int, ...], cascade: int) -> bool:
        """Whether the nodes have a wide enough group for every task of a cascade."""
        count = [0] * len(self._digest.kind_names)
        for n in nodes:
            count[self._digest.nodes[n].kind] += self._digest.nodes[n].size
        tasks = (self._digest.tasks[i] for i in self._digest.cascades[cascade])
        return all(any(m.degree <= count[m.kind] for m in t.modes) for t in tasks)

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

    def _solve(
        self,
        nodes: tuple[int, ...],
        cascades: tuple[int, ...],
        spent: Spent,
        before: Sequence[Run] = (),
        limit_us: int | None = None,
    ) -> Pod | None:
        """A pod with an annealed schedule, from the best list schedule or from earlier runs.

        With a limit the search ends as soon as it is clearly met; None where it cannot be met.
        """
        if not all(self._can_run(nodes, c) for c in cascades):
            return None
        part = part_of(self._digest, nodes, cascades)
        bound_us = lower_bound(part)
        if limit_us is not None and bound_us >= limit_us:
            return None
        enough_us = 0 if limit_us is None else max(bound_us, round(limit_us * _CLEARLY))
        decoder = FastDecoder(part)
        found: list[Schedule] = []
        if before:
            state = self._warm_state(decoder, nodes, cascades, before)
            found.append(decoder.realise(state, *decoder.decode(state)))
        else:
            found.append(min(islice(list_schedules(part, bound_us), _LISTS), key=lambda s: s.key))
            state = decoder.state_of(found[0])
        annealer = Annealer(decoder, self._random.randrange(1 << 30), found.append)
        annealer.note_best(found[0].makespan_us)
        annealer.round(
            state,
            _COOLING,
            lambda placed: 1.0 if found[-1].makespan_us <= enough_us else spent(placed),
        )
        best = min(found, key=lambda s: s.key)
        if limit_us is not None and best.makespan_us >= limit_us:
            return None
        return self._pod(best, nodes, cascades)

    def _warm_state(
        self,
        decoder: FastDecoder,
        nodes: tuple[int, ...],
        cascades: tuple[int, ...],
        before: Sequence[Run],
    ) -> State:
        """Earlier runs in their order; new cascades take the places of those that left."""
        number = {i: k for k, i in enumerate(i for c in cascades for i in self._digest.cascades[c])}
        place = {n: k for k, n in enumerate(nodes)}
        stay = [i for i, _ in before if i in number]
        fresh = iter([i for i in number if i not in set(stay)])
        order = [i if i in number else next(fresh, -1) for i, _ in before]
        order = [i for i in order if i >= 0] + list(fresh)
        picks, sites = [0] * len(order), [ONE_NODE] * len(order)
        for i in order:
            row = self._digest.cascades[self._digest.tasks[i].cascade]
            mode = self._picks[self._digest.tasks[i].cascade].modes[row.index(i)]
            picks[number[i]] = decoder.pick_of(number[i], mode.degree, mode.kind)
        for i, devices in before:
            if i in number:
                kind = self._digest.kind_of[devices[0]]
                picks[number[i]] = decoder.pick_of(number[i], len(devices), kind)
                home = {self._digest.node_of[d] for d in devices}
                sites[number[i]] = place.get(min(home), ONE_NODE) if len(home) == 1 else TWO_NODES
        return State([number[i] for i in self._in_cascade_order(order)], picks, sites)

    def _in_cascade_order(self, order: Sequence[int]) -> list[int]:
        """The order with every task behind its predecessors."""
        out: dict[int, None] = {}

        def put(i: int) -> None:
            for p in self._digest.tasks[i].predecessors:
                put(p)
            out.setdefault(i)

        for i in order:
            put(i)
        return list(out)

    @property
    def _price(self) -> int:
        return 1000 if len(self._digest.kind_names) == 1 else 1500

    def _pod(
        self,
        schedule: Schedule,
        nodes: tuple[int, ...],
        cascades: tuple[int, ...],
    ) -> Pod:
        devices = [d for n in nodes for d in self._digest.nodes[n].devices]
        tasks = [i for c in cascades for i in self._digest.cascades[c]]
        runs = tuple((tasks[i], tuple(devices[d] for d in group)) for i, group in schedule.runs)
        return Pod(nodes=nodes, cascades=cascades, runs=runs, makespan_us=schedule.makespan_us)

    @property
    def makespan_us(self) -> int:
        """Makespan of the slowest pod."""
        return max(pod.makespan_us for pod in self.pods)

    def schedule(self) -> Schedule:
        """The schedule of the whole problem: all pods side by side."""
        runs = [run for pod in self.pods for run in pod.runs]
        return in_start_order(self._digest, left_shift(self._digest, runs))

    def trade(self, begin: Begin) -> bool:
        """Tries one exchange between the slowest pod and another; says whether it helped."""
        return self._attempt(begin, joined=False)

    def merge(self, begin: Begin) -> bool:
        """Tries to shorten the slowest pod by joining it with another for good."""
        return self._attempt(begin, joined=True)

    def _attempt(self, begin: Begin, *, joined: bool) -> bool:
        pair = self.slowest_and_another()
        if pair is None:
            return False
        fresh = self.improved(*pair, begin, joined=joined)
        if fresh is not None:
            self.replace(pair, fresh)
        return fresh is not None

    def replace(self, old: Sequence[Pod], fresh: Sequence[Pod]) -> None:
        """Puts new pods in the place of old ones."""
        self.pods = [pod for pod in self.pods if pod not in old] + list(fresh)

    def improved(
        self, slow: Pod, other: Pod, begin: Begin, *, joined: bool
    ) -> tuple[Pod, ...] | None:
        """Two pods after an exchange, or joined, all faster than the slow one; None if not."""
        return self._joined(slow, other, begin) if joined else self._traded(slow, other, begin)

    def _traded(self, slow: Pod, other: Pod, begin: Begin) -> tuple[Pod, ...] | None:
        fresh: list[Pod] = []
        for pod, row in zip((slow, other), self._exchange(slow, other), strict=True):
            spent = begin(len(pod.runs))
            made = self._solve(pod.nodes, row, spent, pod.runs, slow.makespan_us)
            if made is None:
                return None
            fresh.append(made)
        return tuple(fresh)

    def _joined(self, a: Pod, b: Pod, begin: Begin) -> tuple[Pod, ...] | None:
        nodes = tuple(sorted({*a.nodes, *b.nodes}))
        if sum(self._digest.nodes[n].size for n in nodes) > self._most_devices:
            return None
        runs = sorted((*a.runs, *b.runs), key=lambda run: self._position(a, b, run))
        cascades = tuple(sorted((*a.cascades, *b.cascades)))
        made = self._solve(nodes, cascades, begin(2 * len(runs)), runs, a.makespan_us)
        return None if made is None else (made,)

    def _position(self, a: Pod, b: Pod, run: Run) -> tuple[float, int]:
        runs = a.runs if run in a.runs else b.runs
        return runs.index(run) / len(runs), run[0]

    def slowest_and_another(self, busy: Collection[Pod] = ()) -> tuple[Pod, Pod] | None:
        """The slowest pod that is not busy and another one, more likely a fast one."""
        idle = [pod for pod in self.pods if pod not in busy]
        if len(idle) < 2:
            return None
        ranked = sorted(idle, key=lambda pod: pod.makespan_us)
        return ranked.pop(), ranked[int(len(ranked) * self._random.random() ** 2)]

    def _exchange(self, slow: Pod, other: Pod) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Both pods' cascades after the most levelling of some random exchanges."""
        devices = sum(self._digest.nodes[n].size for n in slow.nodes)
        wish = (slow.makespan_us - other.makespan_us) * devices * self._price / 2
        wish *= self._random.uniform(0.0, 1.5)
        pairs = [
            (self._random.choice(slow.cascades), self._random.choice((*other.cascades, None)))
            for _ in range(_PAIRS)
        ]
        give, take = min(
            pairs,
            key=lambda p: abs(
                self._area[p[0]] - (self._area[p[1]] if p[1] is not None else 0) - wish
            ),
        )
        left = [c for c in slow.cascades if c != give] + ([take] if take is not None else [])
        right = [c for c in other.cascades if c != take] + [give]
        if not left:
            return slow.cascades, other.cascades
        return tuple(sorted(left)), tuple(sorted(right))


def part_of(digest: Digest, nodes: Sequence[int], cascades: Sequence[int]) -> Digest:
    """The digest of some nodes and some cascades of a problem."""
    problem = digest.problem
    chosen = tuple(problem.cluster.nodes[n] for n in nodes)
    zones = {node.zone for node in chosen}
    links = tuple(z for z in problem.cluster.zone_links if set(z.zones) <= zones)
    cluster = replace(problem.cluster, nodes=chosen, zone_links=links)
    rows = tuple(problem.cascades[c] for c in cascades)
    return Digest(CascadeProblem(name=problem.name, cluster=cluster, cascades=rows))
