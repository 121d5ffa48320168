"""Pods: some nodes with their own cascades, many of them solved together and remembered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.bounds import Pick, lower_bound
from arachne_opt.solvers.cascade.cpsat.pod_master import Column
from arachne_opt.solvers.cascade.decoder import FastDecoder, State
from arachne_opt.solvers.cascade.digest import Digest, Where
from arachne_opt.solvers.cascade.list_schedule import cascade_fronts, list_schedules
from arachne_opt.solvers.cascade.pod_batch import Chain, PodBatch
from arachne_opt.solvers.cascade.pod_tables import PodTables
from arachne_opt.solvers.cascade.schedule import Run

# Chains of a batch, fewest and most of a pod.
_COLUMNS, _FEWEST_CHAINS, _MOST_CHAINS = 1536, 16, 128
# Changes of each chain of a small pod, of so many tasks; larger ones need this power as many.
_STEPS, _SMALL, _LONGER = 120, 8, 1.5
# Pods whose numbers of cascades differ by less than about this factor share a batch.
_ALIKE = 1.4
# List schedules of a pod with groups that no site of the batch has.
_LISTS = 6
# So many searches of equal pods are enough.
_SEARCHES = 3
# No limit: any pod is faster.
ANY_US = 1 << 62

# Takes the tasks placed since the last call, and says whether to stop.
Spent = Callable[[int], bool]
# Nodes in numbers of their own: what the floors of equal pods share.
Floor = tuple[int, ...]
# Floor and shapes: what equal pods share.
_Key = tuple[Floor, tuple[int, ...]]


class Site(NamedTuple):
    """A pod to be made: nodes with their cascades."""

    nodes: tuple[int, ...]
    cascades: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Nodes with their cascades and the schedule of these, in the numbers of the whole problem."""

    site: Site
    runs: tuple[Run, ...]
    makespan_us: int


class Wanted(NamedTuple):
    """A pod that is wanted: its site, the makespan to beat, and a pod to go on from.

    ``near`` has about the same cascades.
    """

    site: Site
    limit_us: int = ANY_US
    near: Pod | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The least makespan found for a key, and how often was searched.

    ``runs`` are in the numbers of the pod; None where nobody needed them.
    """

    runs: tuple[Run, ...] | None
    makespan_us: int
    searches: int


class PodSolver:
    """Solves pods of one problem, and remembers what it has solved.

    Args:
        target_us: makespan that is good enough; cheapest degrees that reach it give the areas.
    """

    def __init__(self, digest: Digest, target_us: int, seed: int) -> None:
        self._digest = digest
        self.target_us = target_us
        self._random = np.random.default_rng(seed)
        self._fronts = cascade_fronts(digest)
        self.area = tuple(self._pick(front).cost for front in self._fronts)
        self._known: dict[_Key, _Known] = {}
        self._tables: dict[Floor, PodTables] = {}
        self._number: dict[Floor, dict[int, int]] = {}

    def _pick(self, front: Sequence[Pick]) -> Pick:
        fitting = [pick for pick in front if pick.chain_us <= self.target_us]
        return fitting[-1] if fitting else front[0]

    def room(self, nodes: Sequence[int]) -> int:
        """Number of devices."""
        return sum(self._digest.nodes[n].size for n in nodes)

    def width(self, cascade: int, deadline_us: int) -> int:
        """Devices of one type that a cascade's widest group needs to end by a deadline.

        Where it cannot, as many as it needs to end first.
        """
        front = self._fronts[cascade]
        fitting = [pick for pick in front if pick.chain_us <= deadline_us] or front[:1]
        return min(max(mode.degree for mode in pick.modes) for pick in fitting)

    def can_run(self, nodes: Sequence[int], cascade: int, limit_us: int = ANY_US) -> bool:
        """Whether nodes have room for the groups that a cascade needs to end by a limit."""
        count = [0] * len(self._digest.kind_names)
        for n in nodes:
            count[self._digest.nodes[n].kind] += self._digest.nodes[n].size
        return any(
            all(mode.degree <= count[mode.kind] for mode in pick.modes)
            for pick in self._fronts[cascade]
            if pick.chain_us <= limit_us
        )

    def site(self, nodes: Iterable[int], cascades: Iterable[int]) -> Site:
        """A site whose cascades are in order of their shapes, so that equal ones look alike."""
        shapes = self._digest.shape_of_cascade
        return Site(tuple(nodes), tuple(sorted(cascades, key=lambda c: (shapes[c], c))))

    def work(self, site: Site) -> float:
        """Work to search a site, one for 8 tasks on two nodes."""
        return len(self._tasks(site)) / 8 * len(site.nodes) / 2

    # ------------------------------------------------------------------ memory

    def known(self, wanted: Wanted) -> Pod | None:
        """A pod for an equal site that is known and fast enough."""
        known = self._known.get(self._key(wanted.site))
        if known is None or known.runs is None or known.makespan_us >= wanted.limit_us:
            return None
        return self._pod(wanted.site, known.runs, known.makespan_us)

    def in_vain(self, site: Site, limit_us: int) -> bool:
        """Whether equal pods have been searched enough without coming below a limit."""
        known = self._known.get(self._key(site))
        if known is None or known.makespan_us < limit_us:
            return False
        return known.searches >= _SEARCHES

    def columns(self, limit_us: int, used: Iterable[Pod]) -> list[Column]:
        """All pods that are known and faster than a limit; ``used`` are those at hand."""
        count = Counter(self._key(pod.site) for pod in used)
        return [
            Column(*key, known.makespan_us, count[key])
            for key, known in self._known.items()
            if known.runs is not None and known.makespan_us < limit_us
        ]

    def floor(self, site: Site) -> Floor:
        """What sites with equal nodes share."""
        return tuple(self._digest.node_class[n] for n in site.nodes)

    def remember(self, wanted: Wanted, pod: Pod | None) -> None:
        """Notes what a search elsewhere has found: a pod, or none below the limit."""
        if pod is None:
            self._note(wanted.site, None, wanted.limit_us)
            return
        devices = {d: k for k, d in enumerate(self._devices(pod.site))}
        tasks = {i: k for k, i in enumerate(self._tasks(pod.site))}
        runs = tuple((tasks[i], tuple(devices[d] for d in group)) for i, group in pod.runs)
        self._note(pod.site, runs, pod.makespan_us)

    def _note(self, site: Site, runs: tuple[Run, ...] | None, makespan_us: int) -> None:
        """Notes a search; runs are in the numbers of the pod."""
        key = self._key(site)
        known = self._known.get(key)
        searches = 1 if known is None else known.searches + 1
        if known is None or makespan_us < known.makespan_us:
            known = _Known(runs=runs, makespan_us=makespan_us, searches=0)
        self._known[key] = replace(known, searches=searches)

    def _key(self, site: Site) -> _Key:
        return self.floor(site), tuple(self._digest.shape_of_cascade[c] for c in site.cascades)

    def _devices(self, site: Site) -> list[int]:
        return [d for n in site.nodes for d in self._digest.nodes[n].devices]

    def _tasks(self, site: Site) -> list[int]:
        return [i for c in site.cascades for i in self._digest.cascades[c]]

    def _pod(self, site: Site, runs: Sequence[Run], makespan_us: int) -> Pod:
        """A pod whose runs are given in its own numbers."""
        devices, tasks = self._devices(site), self._tasks(site)
        whole = tuple((tasks[i], tuple(devices[d] for d in group)) for i, group in runs)
        return Pod(site=site, runs=whole, makespan_us=makespan_us)

    # ------------------------------------------------------------------ search

    def solve(self, wanted: Sequence[Wanted], spent: Spent) -> list[Pod | None]:
        """For each wanted pod one below its limit: what is known, or the best of one search.

        Args:
            wanted: equal sites are searched once.
            spent: takes the tasks placed since the last call, and says whether to stop.
        """
        rows: dict[tuple[Floor, int], dict[_Key, Wanted]] = {}
        for want in wanted:
            if self.known(want) is None:
                # Pods in a batch are filled up to the largest: about equal ones go together.
                size = round(math.log(len(want.site.cascades), _ALIKE))
                row = rows.setdefault((self.floor(want.site), size), {})
                row.setdefault(self._key(want.site), want)
        for (floor, _), row in rows.items():
            self._search(floor, list(row.values()), spent)
        return [self.known(want) for want in wanted]

    def _search(self, floor: Floor, wanted: Sequence[Wanted], spent: Spent) -> None:
        """Searches pods whose nodes are alike, in one batch where it has sites for their groups."""
        tables = self._table(floor, wanted[0].site.nodes)
        shapes = [self._numbers(want.site) for want in wanted]
        apt = [k for k, row in enumerate(shapes) if all(map(tables.has_room, row))]
        for k in {*range(len(wanted))}.difference(apt):
            self._note(wanted[k].site, *self._listed(wanted[k].site))
        if not apt:
            return
        rows = [shapes[k] for k in apt]
        chains = max(_FEWEST_CHAINS, min(_MOST_CHAINS, _COLUMNS // len(rows)))
        batch = PodBatch(tables, rows, chains, self._random)
        steps = round(_STEPS * max(1.0, batch.tasks / _SMALL) ** _LONGER)
        given = [self._given(tables, wanted[k], shapes[k]) for k in apt]
        for k, found in zip(apt, batch.anneal(self.target_us, steps, spent, given), strict=True):
            site = wanted[k].site
            if found.makespan_us < wanted[k].limit_us:
                self._note(site, *self._realised(tables, site, shapes[k], found.chain))
            else:
                self._note(site, None, found.makespan_us)

    def _listed(self, site: Site) -> tuple[tuple[Run, ...], int]:
        """Runs and makespan of the best of some list schedules."""
        part = part_of(self._digest, *site)
        lists = islice(list_schedules(part, lower_bound(part)), _LISTS)
        best = min(lists, key=lambda schedule: schedule.key)
        return best.runs, best.makespan_us

    def _given(self, tables: PodTables, wanted: Wanted, shapes: Sequence[int]) -> Chain | None:
        """What a near pod leads to; cascades that came take the places of those that left."""
        site, near = wanted.site, wanted.near
        if near is None:
            return None
        gone = [c for c in near.site.cascades if c not in site.cascades]
        came = [c for c in site.cascades if c not in near.site.cascades]
        heirs = dict(zip(gone, came, strict=False))
        slot = {c: k for k, c in enumerate(site.cascades)}
        turns: list[int] = []
        modes = [-1] * (len(shapes) * tables.tasks)
        sites = [len(tables.sites)] * len(modes)
        for i, devices in near.runs:
            c = self._digest.tasks[i].cascade
            if c in slot:
                x = i - self._digest.cascades[c][-1] - 1 + tables.tasks
                cell = slot[c] * tables.tasks + x
                kind = self._digest.kind_of[devices[0]]
                modes[cell] = tables.mode(shapes[slot[c]], x, len(devices), kind)
                sites[cell] = tables.site(self._place(near.site, devices))
                turns.append(slot[c])
            elif c in heirs:
                turns.append(slot[heirs[c]])
        return Chain(self._filled(tables, site, turns), tuple(modes), tuple(sites))

    def _filled(self, tables: PodTables, site: Site, turns: Sequence[int]) -> tuple[int, ...]:
        """Turns of cascades with as many as each has tasks; the empty ones come first."""
        left = [len(self._digest.cascades[c]) for c in site.cascades]
        order = [k for k, count in enumerate(left) for _ in range(tables.tasks - count)]
        for k in turns:
            if left[k]:
                left[k] -= 1
                order.append(k)
        return (*order, *(k for k, count in enumerate(left) for _ in range(count)))

    def _place(self, site: Site, devices: Sequence[int]) -> Where:
        """A group by the places of its nodes at a site."""
        count = Counter(self._digest.node_of[d] for d in devices)
        return tuple(sorted((site.nodes.index(n), c) for n, c in count.items()))

    def _table(self, floor: Floor, nodes: Sequence[int]) -> PodTables:
        """Tables of all shapes that these nodes can run."""
        if floor not in self._tables:
            first: dict[int, int] = {}
            for c, shape in enumerate(self._digest.shape_of_cascade):
                if shape not in first and self.can_run(nodes, c):
                    first[shape] = c
            part = part_of(self._digest, nodes, tuple(first.values()))
            self._tables[floor] = PodTables(part, len(self._digest.cascades))
            self._number[floor] = {shape: k for k, shape in enumerate(first)}
        return self._tables[floor]

    def _numbers(self, site: Site) -> list[int]:
        """Shapes of a site's cascades as its tables count them."""
        number = self._number[self.floor(site)]
        return [number[self._digest.shape_of_cascade[c]] for c in site.cascades]

    def _realised(
        self, tables: PodTables, site: Site, shapes: Sequence[int], chain: Chain
    ) -> tuple[tuple[Run, ...], int]:
        """Runs and makespan of the exact schedule of what a batch has found."""
        decoder = FastDecoder(part_of(self._digest, *site))
        state = state_of(decoder, tables, shapes, chain)
        schedule = decoder.realise(state, *decoder.decode(state))
        return schedule.runs, schedule.makespan_us


def state_of(decoder: FastDecoder, tables: PodTables, shapes: Sequence[int], found: Chain) -> State:
    """What a batch has found as a state of a pod's own decoder."""
    done = [0] * len(shapes)
    order, picks, sites = [], [0] * len(decoder.modes), [0] * len(decoder.modes)
    for c in found.order:
        if c >= len(shapes):
            continue
        x, done[c] = done[c], done[c] + 1
        column = c * tables.tasks + x
        pick = tables.pick(shapes[c], x, found.modes[column])
        row = decoder.digest.cascades[c]
        if pick is None:
            continue
        i = row[x - tables.tasks + len(row)]
        degree = decoder.modes[i][pick].degree
        order.append(i)
        picks[i], sites[i] = pick, decoder.site_of(tables.place(degree, found.sites[column]))
    return State(order, picks, sites)


def part_of(digest: Digest, nodes: Sequence[int], cascades: Sequence[int]) -> Digest:
    """The digest of some nodes and some cascades of a problem."""
    problem = digest.problem
    chosen = tuple(problem.cluster.nodes[n] for n in nodes)
    zones = {node.zone for node in chosen}
    links = tuple(z for z in problem.cluster.zone_links if set(z.zones) <= zones)
    cluster = replace(problem.cluster, nodes=chosen, zone_links=links)
    rows = tuple(problem.cascades[c] for c in cascades)
    return Digest(CascadeProblem(name=problem.name, cluster=cluster, cascades=rows))
