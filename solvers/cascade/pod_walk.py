"""The search of one pod: walks among list schedules of its cascades on its nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from arachne_opt.solvers.cascade.bounds import Pick, cascade_fronts
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Run
from arachne_opt.solvers.cascade.walks.choice import Choice, blank
from arachne_opt.solvers.cascade.walks.cooling import Heat
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.walker import Walker, Walks

# Schedules that much worse, in parts of the makespan, are gone on from: at first and at last.
_HEAT = Heat(hot=0.006, cold=0.0005)
# Temperatures of a walk at least; deadlines for the degrees that walks begin with, in parts of the
# target.
_TEMPERATURES = 20
_DEADLINES = (1.0, 1.1, 1.25, 1.5)
# Steps of each walk of a small pod, of so many tasks; larger ones need this power as many.
_STEPS, _SMALL, _LONGER = 1000, 8, 1.5
# Another search of an equal pod takes so many times as many, at most so often.
_DEEPER, _MOST_EFFORT = 4, 2
# A search ends where its first walks are so many times as long as wanted.
_HOPELESS = 1.04

# Takes the tasks placed since the last call, and says whether to stop.
Spent = Callable[[int], bool]


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

    ``near`` has about the same cascades, ``effort`` is how often equal pods were searched before.
    """

    site: Site
    limit_us: int = ANY_US
    near: Pod | None = None
    effort: int = 0


class PodWalk:
    """Searches pods of one problem; several threads may at the same time.

    Args:
        target_us: makespan that is good enough.
        odds: of modes, as ``Walks.walker`` takes them.
    """

    def __init__(
        self,
        digest: Digest,
        target_us: int,
        seed: int,
        odds: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self.digest, self.target_us = digest, target_us
        self._seed, self._odds = seed, odds
        self._walks = Walks(digest)
        self._fronts = cascade_fronts(digest)
        self._blank = blank(len(digest.tasks))

    @property
    def beside(self) -> bool:
        """Whether searches of several threads go on at the same time."""
        return self._walks.beside

    def search(self, want: Wanted, spent: Spent) -> Pod:
        """The best pod of some walks, whether it is wanted or not.

        Args:
            want: what for.
            spent: takes the tasks placed since the last call, and says whether to stop.
        """
        nodes, tasks = want.site.nodes, self._tasks(want.site)
        walker = self._walks.walker(self._seed + want.effort, self._odds, nodes)
        steps = _steps(len(tasks), want.effort)
        for choice in self._starts(want):
            if walker.begin(choice, ANY_US, tasks) is None:
                continue
            stopped = _cooled(walker, steps, len(tasks), spent)
            best_us = walker.best.makespan_us
            if stopped or best_us <= self.target_us or best_us > _HOPELESS * want.limit_us:
                break
        return self._pod(want.site, walker)

    def _pod(self, site: Site, walker: Walker) -> Pod:
        best = walker.best
        runs = tuple(self._walks.runs(best, site.nodes))
        return Pod(site=site, runs=runs, makespan_us=best.makespan_us)

    def _tasks(self, site: Site) -> list[int]:
        return sorted(i for c in site.cascades for i in self.digest.cascades[c])

    def _starts(self, want: Wanted) -> Iterator[Choice]:
        """What is near, and the cheapest degrees for some deadlines."""
        if want.near is not None:
            yield self._inherited(want.site, want.near)
        for deadline in _DEADLINES:
            yield self._cheapest(want.site, round(deadline * self.target_us))

    def _cheapest(self, site: Site, deadline_us: int) -> Choice:
        """The cheapest degrees for a deadline on the nodes, longest chains first."""
        digest, table = self.digest, self._walks.table
        count, choice = self._count_of_kind(site.nodes), self._blank.copy()
        for c in site.cascades:
            row, rest_us = digest.cascades[c], dict[int, int]()
            pick = _cheapest(self._fronts[c], count, deadline_us)
            modes = dict(zip(row, pick.modes, strict=True))
            for i in reversed(row):
                after_us = [rest_us[s] for s in digest.tasks[i].successors]
                rest_us[i] = modes[i].least_us + max(after_us, default=0)
                choice.picks[i] = table.pick(i, modes[i].degree, modes[i].kind)
                choice.priority[i] = rest_us[i]
        return choice

    def _count_of_kind(self, nodes: Sequence[int]) -> list[int]:
        count = [0] * len(self.digest.kind_names)
        for n in nodes:
            count[self.digest.nodes[n].kind] += self.digest.nodes[n].size
        return count

    def _inherited(self, site: Site, near: Pod) -> Choice:
        """Degrees and order of a near pod; cascades that came take the turns of those that left."""
        choice = self._cheapest(site, self.target_us)
        gone = [c for c in near.site.cascades if c not in site.cascades]
        came = [c for c in site.cascades if c not in near.site.cascades]
        digest, heirs = self.digest, dict(zip(gone, came, strict=False))
        for c in came:
            for i in digest.cascades[c]:
                choice.priority[i] = -len(near.runs)
        for turn, (i, devices) in enumerate(near.runs):
            task = digest.tasks[i]
            if task.cascade in site.cascades:
                kind = digest.kind_of[devices[0]]
                choice.picks[i] = self._walks.table.pick(i, len(devices), kind)
                choice.priority[i] = -turn
                choice.sites[i] = self._walks.table.site(devices)
            elif task.cascade in heirs:
                row = digest.cascades[heirs[task.cascade]]
                if task.task < len(row):
                    choice.priority[row[task.task]] = -turn
        return choice


def _cheapest(front: Sequence[Pick], count: Sequence[int], deadline_us: int) -> Pick:
    """The cheapest pick for a deadline, or else the fastest, of those that there is room for."""
    able = [p for p in front if all(m.degree <= count[m.kind] for m in p.modes)]
    fitting = [pick for pick in able if pick.chain_us <= deadline_us]
    return fitting[-1] if fitting else able[0]


def _steps(tasks: int, effort: int) -> int:
    """Steps of each walk of a pod."""
    first = round(_STEPS * max(1.0, tasks / _SMALL) ** _LONGER)
    return int(first * _DEEPER ** min(effort, _MOST_EFFORT))


def _cooled(walker: Walker, steps: int, tasks: int, spent: Spent) -> bool:
    """Walks so many steps from hot to cold; whether it had to stop."""
    each, gone = max(1, min(walker.stride, steps // _TEMPERATURES)), 0
    while gone < steps:
        walker.walk(each, _HEAT.at(gone / steps))
        gone += each
        if spent(each * tasks):
            return True
    return False
