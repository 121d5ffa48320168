"""One pod: some nodes with their own cascades, solved by short rounds of annealing.

Many short rounds from different starts find more than a long one: a pod has few tasks, and a round
that has gone wrong early stays wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.annealing import Annealer, Cooling, Spent
from arachne_opt.solvers.cascade.bounds import Pick, lower_bound
from arachne_opt.solvers.cascade.decoder import ONE_NODE, TWO_NODES, FastDecoder, State
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.list_schedule import (
    RULES,
    cascade_fronts,
    decode,
    list_schedules,
    modes_for_deadline,
    priorities,
)
from arachne_opt.solvers.cascade.schedule import Run, Schedule

# Rounds of one solve, how they cool from a fresh start and from earlier runs.
_ROUNDS = 6
_COOLING = Cooling(hot=0.03, cold=0.001, across=0.1)
_WARM_COOLING = Cooling(hot=0.01, cold=0.0005, across=0.1)
# Half the rounds show whether a limit is in reach: within this factor.
_IN_REACH = 1.015
# A trade that comes below its limit by this factor needs no more search.
_CLEARLY = 0.985
# List schedules tried as the first start of a pod; deadlines of fresh starts over the bound.
_LISTS = 6
_LOOSEST = 1.3

# So many searches of equal pods are enough.
_SEARCHES = 2

# A pod in numbers of its own: what pods of equal nodes and equal cascades share.
_Key = tuple[tuple[object, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """Nodes with their cascades and the schedule of these, in the numbers of the whole problem.

    ``fresh`` says that the schedule is a first one that no annealing has seen.
    """

    nodes: tuple[int, ...]
    cascades: tuple[int, ...]
    runs: tuple[Run, ...]
    makespan_us: int
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The best schedule found for a key, its groups as places among the pod's devices."""

    runs: tuple[Run, ...]
    makespan_us: int
    searches: int


class PodSolver:
    """Solves pods of one problem, and remembers what it has solved.

    Args:
        target_us: makespan that is good enough; cheapest degrees that reach it are tried first.
    """

    def __init__(self, digest: Digest, target_us: int, seed: int) -> None:
        self._digest = digest
        self._target_us = target_us
        self._random = random.Random(seed)
        self._picks = [self._pick(front) for front in cascade_fronts(digest)]
        self.area = tuple(pick.cost for pick in self._picks)
        self._known: dict[_Key, _Known] = {}

    def _pick(self, front: Sequence[Pick]) -> Pick:
        fitting = [pick for pick in front if pick.chain_us <= self._target_us]
        return fitting[-1] if fitting else front[0]

    def can_run(self, nodes: Sequence[int], cascade: int) -> bool:
        """Whether the nodes have a wide enough group for every task of a cascade."""
        count = [0] * len(self._digest.kind_names)
        for n in nodes:
            count[self._digest.nodes[n].kind] += self._digest.nodes[n].size
        tasks = (self._digest.tasks[i] for i in self._digest.cascades[cascade])
        return all(any(m.degree <= count[m.kind] for m in t.modes) for t in tasks)

    def quick(self, nodes: Sequence[int], cascades: Sequence[int]) -> Pod:
        """A pod with the best of a few list schedules."""
        nodes, cascades = tuple(nodes), self._sorted(cascades)
        if known := self._known.get(self._key(nodes, cascades)):
            return self._relabelled(known, nodes, cascades)
        part = part_of(self._digest, nodes, cascades)
        lists = islice(list_schedules(part, lower_bound(part)), _LISTS)
        return self._pod(min(lists, key=lambda s: s.key), nodes, cascades, fresh=True)

    def again(self, pod: Pod, spent: Spent) -> tuple[Pod] | None:
        """The pod with a faster schedule; a fresh one comes back in any case, searched."""
        part = part_of(self._digest, pod.nodes, pod.cascades)
        limit_us = pod.makespan_us
        best = self._annealed(part, pod.nodes, pod.cascades, spent, pod.runs, limit_us, 0)
        self._remember(pod.nodes, pod.cascades, best)
        if best.makespan_us < pod.makespan_us:
            return (self._pod(best, pod.nodes, pod.cascades),)
        return (replace(pod, fresh=False),) if pod.fresh else None

    def better(
        self,
        nodes: Sequence[int],
        cascades: Sequence[int],
        spent: Spent,
        before: Sequence[Run],
        limit_us: int,
    ) -> Pod | None:
        """A pod that is faster than a limit, None where none is found in time.

        Args:
            nodes: its nodes.
            cascades: its cascades.
            spent: the clock of this solve.
            before: runs of an earlier pod with about the same cascades, in order.
            limit_us: makespan to beat.
        """
        nodes, cascades = tuple(nodes), self._sorted(cascades)
        if not all(self.can_run(nodes, c) for c in cascades):
            return None
        known = self._known.get(self._key(nodes, cascades))
        if known is not None and known.makespan_us < limit_us:
            return self._relabelled(known, nodes, cascades)
        part = part_of(self._digest, nodes, cascades)
        bound_us = lower_bound(part)
        if bound_us >= limit_us:
            return None
        enough_us = round(_CLEARLY * limit_us)
        best = self._annealed(part, nodes, cascades, spent, before, limit_us, enough_us)
        self._remember(nodes, cascades, best)
        return self._pod(best, nodes, cascades) if best.makespan_us < limit_us else None

    def in_vain(self, nodes: Sequence[int], cascades: Sequence[int], limit_us: int) -> bool:
        """Whether equal pods have been searched enough without coming below a limit."""
        known = self._known.get(self._key(tuple(nodes), self._sorted(cascades)))
        if known is None or known.makespan_us < limit_us:
            return False
        return known.searches >= _SEARCHES

    def _annealed(
        self,
        part: Digest,
        nodes: tuple[int, ...],
        cascades: tuple[int, ...],
        spent: Spent,
        before: Sequence[Run],
        limit_us: int,
        enough_us: int,
    ) -> Schedule:
        """The best schedule of some rounds: from the earlier runs, then from fresh starts.

        It ends early below what is enough or the target, and where the limit is out of reach.
        """
        bound_us = lower_bound(part)
        enough_us = max(bound_us, min(limit_us - 1, max(enough_us, self._target_us)))
        decoder, fronts = FastDecoder(part), cascade_fronts(part)
        state = self._warm_state(decoder, nodes, cascades, before)
        found = [decoder.realise(state, *decoder.decode(state))]
        annealer = Annealer(decoder, self._random.randrange(1 << 30), found.append)
        annealer.note_best(found[0].makespan_us)
        for k in range(_ROUNDS):
            if k:
                state = decoder.state_of(self._fresh(part, fronts, bound_us))

            def share(placed: int, done: int = k) -> float:
                if found[-1].makespan_us <= enough_us:
                    return 1.0
                return _ROUNDS * spent(placed) - done

            annealer.round(state, _COOLING if k else _WARM_COOLING, share)
            out_of_reach = found[-1].makespan_us > _IN_REACH * limit_us
            if found[-1].makespan_us <= enough_us or (k == _ROUNDS // 2 - 1 and out_of_reach):
                break
        return min(found, key=lambda s: s.key)

    def _fresh(self, part: Digest, fronts: Sequence[Sequence[Pick]], bound_us: int) -> Schedule:
        """A list schedule for a random deadline by a random rule."""
        deadline_us = round(bound_us * self._random.uniform(1.0, _LOOSEST))
        modes = modes_for_deadline(part, fronts, deadline_us)
        return decode(part, modes, priorities(part, modes, self._random.choice(RULES)))

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

    # ------------------------------------------------------------------ equal pods

    def _sorted(self, cascades: Sequence[int]) -> tuple[int, ...]:
        """Cascades with equal ones side by side, so that pods of equal shapes look alike."""
        return tuple(sorted(cascades, key=lambda c: (self._digest.shape_of_cascade[c], c)))

    def _key(self, nodes: tuple[int, ...], cascades: tuple[int, ...]) -> _Key:
        kinds = tuple(self._digest.node_class[n] for n in nodes)
        return kinds, tuple(self._digest.shape_of_cascade[c] for c in cascades)

    def _remember(self, nodes: tuple[int, ...], cascades: tuple[int, ...], found: Schedule) -> None:
        key = self._key(nodes, cascades)
        known = self._known.get(key)
        searches = 1 if known is None else known.searches + 1
        if known is None or found.makespan_us < known.makespan_us:
            known = _Known(runs=found.runs, makespan_us=found.makespan_us, searches=0)
        self._known[key] = replace(known, searches=searches)

    def _relabelled(self, known: _Known, nodes: tuple[int, ...], cascades: tuple[int, ...]) -> Pod:
        return self._whole(known.runs, known.makespan_us, nodes, cascades, fresh=False)

    def _pod(
        self,
        schedule: Schedule,
        nodes: tuple[int, ...],
        cascades: tuple[int, ...],
        *,
        fresh: bool = False,
    ) -> Pod:
        return self._whole(schedule.runs, schedule.makespan_us, nodes, cascades, fresh=fresh)

    def _whole(
        self,
        runs: Sequence[Run],
        makespan_us: int,
        nodes: tuple[int, ...],
        cascades: tuple[int, ...],
        *,
        fresh: bool,
    ) -> Pod:
        """A pod whose runs are given in numbers of the part."""
        devices = [d for n in nodes for d in self._digest.nodes[n].devices]
        tasks = [i for c in cascades for i in self._digest.cascades[c]]
        return Pod(
            nodes=nodes,
            cascades=cascades,
            runs=tuple((tasks[i], tuple(devices[d] for d in group)) for i, group in runs),
            makespan_us=makespan_us,
            fresh=fresh,
        )


def part_of(digest: Digest, nodes: Sequence[int], cascades: Sequence[int]) -> Digest:
    """The digest of some nodes and some cascades of a problem."""
    problem = digest.problem
    chosen = tuple(problem.cluster.nodes[n] for n in nodes)
    zones = {node.zone for node in chosen}
    links = tuple(z for z in problem.cluster.zone_links if set(z.zones) <= zones)
    cluster = replace(problem.cluster, nodes=chosen, zone_links=links)
    rows = tuple(problem.cascades[c] for c in cascades)
    return Digest(CascadeProblem(name=problem.name, cluster=cluster, cascades=rows))
