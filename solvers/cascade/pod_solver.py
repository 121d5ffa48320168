"""Pods: some nodes with their own cascades, many of them solved together and remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from arachne_opt.solvers.cascade.bounds import Pick, cascade_fronts
from arachne_opt.solvers.cascade.cpsat.pod_master import Column
from arachne_opt.solvers.cascade.pod_walk import Pod, PodWalk, Site, Spent, Wanted
from arachne_opt.solvers.cascade.schedule import Run
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US

# So many searches of equal pods are enough.
_SEARCHES = 3
# Nodes in numbers of their own: what the floors of equal pods share.
Floor = tuple[int, ...]
# Floor and shapes: what equal pods share.
_Key = tuple[Floor, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The least makespan found for a key, and how often was searched.

    ``runs`` are in the numbers of the pod.
    """

    runs: tuple[Run, ...]
    makespan_us: int
    searches: int


class PodSolver:
    """Solves pods of one problem, and remembers what it has solved.

    Args:
        walk: searches them; the cheapest degrees that reach its target give the areas.
    """

    def __init__(self, walk: PodWalk) -> None:
        self.walk, self.target_us = walk, walk.target_us
        self._digest = digest = walk.digest
        self._fronts = cascade_fronts(digest)
        self.area = tuple(self._pick(front).cost for front in self._fronts)
        self._known: dict[_Key, _Known] = {}

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
        if known is None or known.makespan_us >= wanted.limit_us:
            return None
        return self._pod(wanted.site, known.runs, known.makespan_us)

    def in_vain(self, site: Site, limit_us: int) -> bool:
        """Whether equal pods have been searched enough without coming below a limit."""
        known = self._known.get(self._key(site))
        if known is None or known.makespan_us < limit_us:
            return False
        return known.searches >= _SEARCHES

    def _searches(self, key: _Key) -> int:
        known = self._known.get(key)
        return 0 if known is None else known.searches

    def columns(self, limit_us: int, used: Iterable[Pod]) -> list[Column]:
        """All pods that are known and faster than a limit; ``used`` are those at hand."""
        count = Counter(self._key(pod.site) for pod in used)
        return [
            Column(*key, known.makespan_us, count[key])
            for key, known in self._known.items()
            if known.makespan_us < limit_us
        ]

    def floor(self, site: Site) -> Floor:
        """What sites with equal nodes share."""
        return tuple(self._digest.node_class[n] for n in site.nodes)

    def remember(self, pod: Pod) -> None:
        """Notes what a search has found."""
        devices = {d: k for k, d in enumerate(self._devices(pod.site))}
        tasks = {i: k for k, i in enumerate(self._tasks(pod.site))}
        runs = tuple((tasks[i], tuple(devices[d] for d in group)) for i, group in pod.runs)
        key = self._key(pod.site)
        known = self._known.get(key)
        searches = 1 if known is None else known.searches + 1
        if known is None or pod.makespan_us < known.makespan_us:
            known = _Known(runs=runs, makespan_us=pod.makespan_us, searches=0)
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

    def unknown(self, wanted: Iterable[Wanted]) -> list[Wanted]:
        """Those that have to be searched; of equal sites the first."""
        rows: dict[_Key, Wanted] = {}
        for want in wanted:
            if self.known(want) is None:
                rows.setdefault(self._key(want.site), want)
        return [want._replace(effort=self._searches(key)) for key, want in rows.items()]

    def solve(self, wanted: Sequence[Wanted], spent: Spent) -> list[Pod | None]:
        """For each wanted pod one below its limit: what is known, or the best of one search.

        Args:
            wanted: equal sites are searched once.
            spent: takes the tasks placed since the last call, and says whether to stop.
        """
        for want in self.unknown(wanted):
            self.remember(self.walk.search(want, spent))
        return [self.known(want) for want in wanted]
