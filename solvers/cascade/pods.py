"""Decomposition for large clusters: pods of nodes with their own cascades, traded between pods.

Each pod is a small problem of its own. Cascades are dealt out by device time and levelled; then
the slow pods trade cascades with others, many trades at a time, as long as that shortens them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.cpsat.pod_master import Column, best_cover
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_deal import deal, level
from arachne_opt.solvers.cascade.pod_solver import PodSolver
from arachne_opt.solvers.cascade.pod_walk import Pod, Site, Spent, Wanted
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order, left_shift

# Trades drawn until one is promising: this share of a typical makespan for each load is below the
# limit.
_DRAWS, _SLACK = 24, 0.98
# Share of the pods that count as slow; shares of trades that begin with any pod, that search a pod
# again, and that regroup several pods, so many of them after so many swaps to level them.
_SLOW_SHARE, _ELSEWHERE, _AGAIN_SHARE, _REGROUP_SHARE = 0.25, 0.3, 0.1, 0.1
_REGROUPED, _LEVELLING = (3, 3, 4), 40
# A master that found nothing is tried again after up to so many batches.
_LONGEST_REST = 4


class Trade(NamedTuple):
    """Pods, the slowest first, and those that take their place if all become faster than it."""

    old: tuple[Pod, ...]
    wanted: tuple[Wanted, ...]


class Pods:
    """The pods of a problem.

    Args:
        solver: makes the pods of this problem.
    """

    def __init__(self, digest: Digest, solver: PodSolver, seed: int) -> None:
        self._digest = digest
        self._random = random.Random(seed)
        self._solver = solver
        # Makespan over load of a typical pod.
        self._waste = 1.0
        # The master is tried every so many times; times until then.
        self._wait, self._rest = 1, 0
        self.pods: list[Pod] = []

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
        sites = deal(self._digest, self._solver, self._random)
        made = self._solver.solve([Wanted(site) for site in sites], spent)
        self.pods = [pod for pod in made if pod is not None]
        assert len(self.pods) == len(sites)  # without a limit each is found

    def trades(self, work: float) -> list[Trade]:
        """Things to try, most of them with the slow pods, for so much work.

        Everything that is faster than the slowest pod is wanted: the master may have a use for it.

        Args:
            work: one for the search of a pod with 8 tasks on two nodes.
        """
        ordered = sorted(self.pods, key=lambda pod: -pod.makespan_us)
        waste = sorted(pod.makespan_us / self._load(pod.site) for pod in ordered)
        self._waste = waste[len(waste) // 2]
        out: list[Trade] = []
        for _ in range(round(work)):
            trade = self._trade(ordered, self._place(len(ordered)))
            if trade is not None:
                out.append(trade)
                work -= sum(self._solver.work(want.site) for want in trade.wanted)
            if work <= 0:
                break
        return out

    def _place(self, pods: int) -> int:
        if self._random.random() < _ELSEWHERE:
            return self._random.randrange(pods)
        return int(max(1, round(_SLOW_SHARE * pods)) * self._random.random() ** 2)

    def _trade(self, ordered: Sequence[Pod], at: int) -> Trade | None:
        """A trade of a pod with faster ones, or another search of it."""
        slow, others = ordered[at], ordered[at + 1 :]
        again = not self._solver.in_vain(slow.site, slow.makespan_us)
        if again and (not others or self._random.random() < _AGAIN_SHARE):
            return Trade((slow,), (Wanted(slow.site, slow.makespan_us, slow),))
        limit_us = ordered[0].makespan_us
        if others and self._random.random() > _REGROUP_SHARE:
            other = others[-1 - int(len(others) * self._random.random() ** 2)]
            if trade := self._promising((slow, other), self._exchanged, limit_us):
                return trade
        # Where two pods have tried all, three or four have more ways.
        more = self._random.choice(_REGROUPED) - 1
        if len(others) < more:
            return None
        return self._promising(
            (slow, *self._random.sample(others, more)), self._regrouped, limit_us
        )

    def _promising(
        self,
        old: tuple[Pod, ...],
        draw: Callable[[Sequence[Pod]], list[Site]],
        limit_us: int,
    ) -> Trade | None:
        """The first trade drawn whose sites are all worth a search."""
        for _ in range(_DRAWS):
            sites = draw(old)
            if all(self._worth(site, limit_us) for site in sites):
                wanted = zip(sites, old, strict=True)
                return Trade(old, tuple(Wanted(site, limit_us, pod) for site, pod in wanted))
        return None

    def _exchanged(self, old: Sequence[Pod]) -> list[Site]:
        """The sites of two pods after each has passed one or two cascades on to the other."""
        passed = []
        for pod in old:
            count = min(self._random.choice((1, 1, 2)), len(pod.site.cascades))
            passed.append({*self._random.sample(pod.site.cascades, count)})
        return [
            self._solver.site(pod.site.nodes, {*pod.site.cascades} - passed[k] | passed[k - 1])
            for k, pod in enumerate(old)
        ]

    def _regrouped(self, old: Sequence[Pod]) -> list[Site]:
        """Sites of pods whose cascades are dealt anew, about level."""
        cascades = [c for pod in old for c in pod.site.cascades]
        self._random.shuffle(cascades)
        rows, begin = [], 0
        for pod in old:
            end = begin + len(pod.site.cascades)
            rows.append(cascades[begin:end])
            begin = end
        level(self._solver, self._random, [pod.site.nodes for pod in old], rows, _LEVELLING)
        return [self._solver.site(pod.site.nodes, row) for pod, row in zip(old, rows, strict=True)]

    def _worth(self, site: Site, limit_us: int) -> bool:
        """Whether a site can be run, is not too full, and has not been searched in vain."""
        full = self._load(site) * self._waste * _SLACK > limit_us
        if full or not all(self._solver.can_run(site.nodes, c, limit_us) for c in site.cascades):
            return False
        return not self._solver.in_vain(site, limit_us)

    def _load(self, site: Site) -> float:
        """Device time of the cascades over the devices."""
        return sum(self._solver.area[c] for c in site.cascades) / self._solver.room(site.nodes)

    def search(self, trades: Sequence[Trade], spent: Spent) -> list[Pod | None]:
        """For each pod that the trades want one that is fast enough, None where none was found."""
        return self._solver.solve([want for trade in trades for want in trade.wanted], spent)

    def settled(self, trades: Sequence[Trade]) -> None:
        """Does trades whose pods were searched elsewhere and are remembered."""
        self.settle(trades, [self._solver.known(w) for trade in trades for w in trade.wanted])

    def settle(self, trades: Sequence[Trade], found: Sequence[Pod | None]) -> None:
        """Does the trades whose pods are all faster than the slowest of the old ones.

        Those of the slowest pods come first, of these the ones whose pods become fastest.
        """
        rest = iter(found)
        done = []
        for trade in trades:
            fresh = [next(rest) for _ in trade.wanted]
            made = [pod for pod in fresh if pod is not None]
            longest_us = max((pod.makespan_us for pod in made), default=0)
            if len(made) == len(fresh) and longest_us < trade.old[0].makespan_us:
                done.append((-trade.old[0].makespan_us, longest_us, trade.old, made))
        done.sort(key=lambda trade: trade[:2])
        for _, _, old, made in done:
            # An earlier one may have taken its pods.
            if all(pod in self.pods for pod in old):
                self.pods = [pod for pod in self.pods if pod not in old] + made

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
        self._wait = 1 if cover.uses is not None else min(2 * self._wait, _LONGEST_REST)
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
