"""Search over batchings: annealing whose steps are priced by a quick list schedule.

A state holds, for every micro-batch, its clips, its pick of modes, and a rank that orders it among
the others. The quick schedule knows nodes and device types; penalties and hand-offs it takes at
their least, so that its makespan is an estimate. Plans are made and judged elsewhere.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from arachne_opt.cascade.batching import Batching, Segment
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest

# Weight of the mean time at which devices become free: it tells states of equal makespan apart.
_MEAN_WEIGHT = 0.1
_HOT, _COLD = 0.02, 0.0005  # temperatures of the annealing as shares of the estimate
_LEADS = (0.0, 0.15, 0.4, 2.0)
_SEED_STRETCHES = (1.0, 1.05, 1.12, 1.25, 1.5, 2.0)
_KEPT = 8
_NEVER = 1 << 62


class Entry(NamedTuple):
    """A micro-batch: its segment, its kind, the number of its pick, and its rank, high first.

    Each task but the last is placed as if its rank was higher by ``lead`` than that of the next.
    """

    segment: Segment
    kind: int
    pick: int
    rank: float
    lead: float


class State(NamedTuple):
    """All micro-batches."""

    entries: tuple[Entry, ...]

    @property
    def batching(self) -> Batching:
        """The sizes by family."""
        rows: dict[int, list[tuple[int, int]]] = {}
        for entry in self.entries:
            s = entry.segment
            rows.setdefault(s.family, []).append((s.first, s.size))
        return tuple(tuple(size for _, size in sorted(rows[f])) for f in sorted(rows))


class Scored(NamedTuple):
    """A state with its estimate."""

    cost: float
    state: State


class _Step(NamedTuple):
    """One task of a micro-batch in the quick schedule."""

    degree: int
    kind: int
    duration_us: int
    area_us: int
    predecessors: tuple[int, ...]


class QuickSchedule:
    """Estimates makespans: tasks in order of rank, each on the node where it ends first."""

    def __init__(self, digest: BatchingDigest) -> None:
        self._digest = digest
        catalogue = digest.catalogue
        self._nodes = [
            [list(node.devices) for node in catalogue.nodes if node.kind == k]
            for k in range(len(catalogue.kind_names))
        ]
        self._count = catalogue.device_count
        self._steps: dict[tuple[int, int], tuple[_Step, ...]] = {}
        self._tasks_of = [range(len(row)) for row in catalogue.cascades]
        self._last = max(map(len, catalogue.cascades)) - 1

    def order(self, state: State) -> list[tuple[float, int, int]]:
        """Tasks as (minus rank, entry, task of the entry) in the order of placing."""
        last = self._last
        items = [
            (-entry.rank - entry.lead * (last - task), number, task)
            for number, entry in enumerate(state.entries)
            for task in self._tasks_of[entry.kind]
        ]
        items.sort()
        return items

    def cost(self, state: State, limit: float = math.inf) -> float:
        """Makespan plus a little of the mean end of the devices; infinite above a limit.

        The mean is known early: the device time of all tasks and the idle time so far over the
        devices. It is a lower bound of the makespan, too.
        """
        free = [[list(devices) for devices in nodes] for nodes in self._nodes]
        steps = [self._steps_of(entry) for entry in state.entries]
        busy = sum([step.area_us for row in steps for step in row])
        # Both terms of the cost are at least the mean.
        most = limit * self._count / (1 + _MEAN_WEIGHT)
        if busy > most:
            return math.inf
        ends: dict[tuple[int, int], int] = {}
        longest = 0
        for _, number, task in self.order(state):
            step = steps[number][task]
            ready = 0
            for p in step.predecessors:
                ready = max(ready, ends[number, p])
            start, slots = self._place(free[step.kind], step, ready)
            ends[number, task] = end = start + step.duration_us
            busy += step.degree * start - sum(slots) // self._count
            longest = max(longest, end)
            if longest > limit or busy > most:
                return math.inf
        return longest + _MEAN_WEIGHT * busy / self._count

    def groups(self, state: State) -> dict[tuple[int, int], tuple[int, ...]]:
        """Devices by (entry, task), as the estimate places them, in the order of placing."""
        free = [[list(devices) for devices in nodes] for nodes in self._nodes]
        ends: dict[tuple[int, int], int] = {}
        found: dict[tuple[int, int], tuple[int, ...]] = {}
        for _, number, task in self.order(state):
            step = self._steps_of(state.entries[number])[task]
            ready = max((ends[number, p] for p in step.predecessors), default=0)
            start, slots = self._place(free[step.kind], step, ready)
            ends[number, task] = start + step.duration_us
            found[number, task] = tuple(sorted(slot % self._count for slot in slots))
        return found

    def _steps_of(self, entry: Entry) -> tuple[_Step, ...]:
        key = entry.kind, entry.pick
        if key not in self._steps:
            catalogue = self._digest.catalogue
            row = catalogue.cascades[entry.kind]
            modes = self._digest.fronts[entry.kind][entry.pick].modes
            self._steps[key] = tuple(
                _Step(
                    mode.degree,
                    mode.kind,
                    mode.least_us,
                    mode.area_us,
                    tuple(p - row[0] for p in catalogue.tasks[t].predecessors),
                )
                for t, mode in zip(row, modes, strict=True)
            )
        return self._steps[key]

    def _place(self, nodes: list[list[int]], step: _Step, ready: int) -> tuple[int, list[int]]:
        """Places a task on the node where it ends first: its start, and the slots that it takes.

        A slot is the time at which a device is free times the number of devices, plus the device:
        slots sort by time. Of the devices free at the start those free last are taken.
        """
        count, degree = self._count, step.degree
        last, start = degree - 1, _NEVER
        equal: list[list[int]] = []
        for free in nodes:
            if len(free) < degree:
                continue
            begin = free[last] // count
            if begin < ready:
                begin = ready
            if begin < start:
                start, equal = begin, [free]
            elif begin == start:
                equal.append(free)
        if not equal:
            return self._place_wide(nodes, step, ready)
        after, most = (start + 1) * count, -1
        for free in equal:
            upto = bisect_left(free, after)
            held = sum(free[upto - degree : upto])
            if held > most:
                most, chosen, at = held, free, upto
        taken = chosen[at - degree : at]
        ended = (start + step.duration_us) * count
        chosen[at - degree : at] = [ended + slot % count for slot in taken]
        chosen.sort()
        return start, taken

    def _place_wide(self, nodes: list[list[int]], step: _Step, ready: int) -> tuple[int, list[int]]:
        """The same over the nodes that are free first, taken whole but for the last."""
        count, start, left = self._count, ready, step.degree
        parts: list[tuple[list[int], int]] = []
        for free in sorted(nodes, key=lambda free: free[-1]):
            take = min(left, len(free))
            start = max(start, free[take - 1] // count)
            parts.append((free, take))
            left -= take
            if left == 0:
                break
        ended = (start + step.duration_us) * count
        slots: list[int] = []
        for free, take in parts:
            slots += free[:take]
            free[:take] = [ended + slot % count for slot in free[:take]]
            free.sort()
        return start, slots


class BatchingSearch:
    """Annealing over states; keeps the best state of each of the best batchings."""

    def __init__(self, digest: BatchingDigest, bound_us: int, seed: int) -> None:
        self.digest = digest
        self._bound_us = bound_us
        self._rng = random.Random(seed)
        self._schedule = QuickSchedule(digest)
        self._best: dict[Batching, Scored] = {}
        self.tried = 0

    @property
    def schedule(self) -> QuickSchedule:
        """The quick schedule that judges the states."""
        return self._schedule

    def best(self) -> list[Scored]:
        """The best states of the best batchings, one each, the best first."""
        return sorted(self._best.values(), key=lambda scored: scored.cost)

    def seed(self, batching: Batching) -> int:
        """Tries a batching with the cheapest picks for several deadlines; says how many states."""
        for stretch in _SEED_STRETCHES:
            deadline_us = round(self._bound_us * stretch)
            for lead in _LEADS:
                state = self._state(batching, deadline_us, lead)
                self._keep(Scored(self._schedule.cost(state), state))
        return len(_SEED_STRETCHES) * len(_LEADS)

    def anneal(self, progress: Callable[[], float]) -> None:
        """Walks from the best state until ``progress``, between 0 and 1, reaches 1."""
        at = self.best()[0]
        while (share := progress()) < 1:
            heat = _HOT * (_COLD / _HOT) ** share * at.cost
            state = self._neighbour(at)
            self.tried += 1
            if state is None:
                continue
            limit = at.cost - heat * math.log(1 - self._rng.random())
            cost = self._schedule.cost(state, limit)
            if cost <= limit:
                at = Scored(cost, state)
                self._keep(at)

    def _keep(self, scored: Scored) -> None:
        batching = scored.state.batching
        known = self._best.get(batching)
        if known is not None and known.cost <= scored.cost:
            return
        self._best[batching] = scored
        if len(self._best) > _KEPT:
            worst = max(self._best, key=lambda b: self._best[b].cost)
            del self._best[worst]

    def _state(self, batching: Batching, deadline_us: int, lead: float) -> State:
        """Ranks by falling chain, picks for a deadline."""
        entries = [
            self._entry(segment, deadline_us, 0.0, lead)
            for segment in self.digest.problem.segments(batching)
        ]
        chains = [self.digest.fronts[e.kind][e.pick].chain_us for e in entries]
        longest = max(chains)
        ranked = (e._replace(rank=c / longest) for e, c in zip(entries, chains, strict=True))
        return State(tuple(ranked))

    def _entry(self, segment: Segment, deadline_us: int, rank: float, lead: float) -> Entry:
        """A micro-batch with the cheapest pick for a deadline, its fastest where none fits."""
        family = self.digest.problem.families[segment.family]
        kind = family.kind(segment.first, segment.size)
        assert kind is not None  # moves are made of candidates only
        return Entry(segment, kind, self.digest.pick_for(kind, deadline_us) or 0, rank, lead)

    def _neighbour(self, at: Scored) -> State | None:
        """A state one move away, None where the move drawn is impossible."""
        rng, entries = self._rng, at.state.entries
        number = rng.randrange(len(entries))
        draw = rng.random()
        if draw < 0.25:
            return _with(at.state, number, self._other_pick(entries[number]))
        if draw < 0.5:
            return self._other_rank(at.state, number)
        if draw < 0.6:
            lead = rng.choice((*_LEADS, rng.random()))
            return _with(at.state, number, entries[number]._replace(lead=lead))
        return self._other_segments(at, number)

    def _other_pick(self, entry: Entry) -> Entry | None:
        pick = entry.pick + self._rng.choice((-2, -1, 1, 2))
        if 0 <= pick < len(self.digest.fronts[entry.kind]):
            return entry._replace(pick=pick)
        return None

    def _other_rank(self, state: State, number: int) -> State | None:
        """A new rank, or the ranks of two micro-batches exchanged."""
        rng, entries = self._rng, list(state.entries)
        other = rng.randrange(len(entries))
        mine, its = entries[number], entries[other]
        if rng.random() < 0.5:
            entries[number] = mine._replace(rank=its.rank + rng.uniform(-0.02, 0.02))
        elif mine.rank == its.rank:
            return None
        else:
            entries[number] = mine._replace(rank=its.rank)
            entries[other] = its._replace(rank=mine.rank)
        return State(tuple(entries))

    def _other_segments(self, at: Scored, number: int) -> State | None:
        """One micro-batch cut in two, or two neighbours of a shape joined or cut elsewhere."""
        entries = at.state.entries
        mine = entries[number]
        family, first, size = mine.segment
        after = next((e for e in entries if e.segment[:2] == (family, first + size)), None)
        cut = self._rng.random() < 0.4
        old: tuple[Entry, ...] = (mine,)
        if cut or after is None:
            total = size
            parts = [self._rng.randrange(1, size)] if size > 1 else []
        else:
            total, old = size + after.segment.size, (mine, after)
            change = self._rng.choice((-1, 1, 0))
            parts = [size + change] if change else [total]
        if not parts or not 0 < parts[0] <= total:
            return None
        sizes = parts if parts[0] == total else [parts[0], total - parts[0]]
        return self._recut(at, old, first, sizes)

    def _recut(
        self, at: Scored, old: tuple[Entry, ...], first: int, sizes: Sequence[int]
    ) -> State | None:
        """The state with some neighbours replaced by micro-batches of other sizes."""
        number = old[0].segment.family
        family = self.digest.problem.families[number]
        deadline_us = round(at.cost * self._rng.uniform(0.3, 1.0))
        made = []
        for index, size in enumerate(sizes):
            if family.kind(first, size) is None:
                return None
            *_, rank, lead = old[min(index, len(old) - 1)]
            made.append(self._entry(Segment(number, first, size), deadline_us, rank, lead))
            first += size
        kept = [entry for entry in at.state.entries if entry not in old]
        return State((*kept, *made))


def _with(state: State, number: int, entry: Entry | None) -> State | None:
    if entry is None:
        return None
    return State((*state.entries[:number], entry, *state.entries[number + 1 :]))
