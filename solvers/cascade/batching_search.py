"""Search over batchings: walks among list schedules, with other micro-batches now and then.

All candidates are cascades of one digest, and a state runs some of them: those that hold every
clip once. Its list schedule is exact, so that a better one is a better plan.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import NamedTuple

from arachne_opt.cascade.batching import Batching, Segment
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.schedule import in_start_order, left_shift, to_plan
from arachne_opt.solvers.cascade.walks.choice import FREE, Choice
from arachne_opt.solvers.cascade.walks.cooling import Heat, Progress
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.walker import Walks

HEAT = Heat(hot=0.003, cold=0.0003)
# Beyond the heat, other micro-batches may end so much later at first, in parts of the makespan: a
# walk of so many placed tasks makes up for it, or they are given up.
_WORSE, _REPAIR = 0.05, 2000
# Share of these changes that keep the degrees as far as they can; deadlines for the degrees of the
# others, in parts of the makespan.
_KEEP, _DEADLINES = 0.5, (0.3, 1.0)
# So many batchings of a walk are remembered.
_MET = 64


class State(NamedTuple):
    """Candidates that run, and their list schedule with modes and priorities."""

    running: tuple[int, ...]
    place: Place

    @property
    def makespan_us(self) -> int:
        """Of the list schedule."""
        return self.place.makespan_us

    @property
    def start(self) -> tuple[Sequence[int], Choice]:
        """What a search goes on from."""
        return self.running, self.place.choice


class BatchingSearch:
    """Walks over states."""

    def __init__(self, digest: BatchingDigest, seed: int) -> None:
        self.digest = digest
        self._rng = random.Random(seed)
        self._all = digest.candidates
        self._number = {segment: c for c, segment in enumerate(digest.segments)}
        self._walks = Walks(self._all)
        self._table = self._walks.table
        self._walker = self._walks.walker(seed)
        self.placed_per_unit = self._walker.placed_per_unit
        self._running: tuple[int, ...] = ()

    @property
    def now(self) -> State:
        """Where the search is; it has to have begun."""
        return State(self._running, self._walker.now)

    def batching(self, state: State) -> Batching:
        """The sizes by family."""
        rows: dict[int, list[int]] = {}
        for segment in sorted(self.digest.segments[c] for c in state.running):
            rows.setdefault(segment.family, []).append(segment.size)
        return tuple(tuple(rows[f]) for f in sorted(rows))

    def start(self, problem: CascadeProblem, plan: CascadePlan) -> State:
        """The state with the degrees, the order and the groups of a plan for a batching."""
        modes = self._modes(plan.makespan_us)
        priority = [0] * len(modes)
        number, ran = {s.id: c for s, c in self._number.items()}, dict[int, tuple[int, ...]]()
        running = [number[cascade.id] for cascade in problem.cascades]
        for p in plan.placements:
            i = self._all.cascades[running[p.cascade]][p.task]
            mode = self._all.tasks[i].mode(p.degree, self._all.kind_of[p.devices[0]])
            priority[i] = -p.start_us
            if mode is not None:
                modes[i], ran[i] = mode, p.devices
        choice = self._table.choice(modes, priority)
        for i, devices in ran.items():
            choice.sites[i] = self._table.site(devices)
            choice.groups[i] = self._table.group(devices)
        return self.begun(running, choice)

    def begun(self, running: Sequence[int], choice: Choice) -> State:
        """Goes on from a choice, however long it takes."""
        self._goes_on(running, choice, ANY_US)
        return self.now

    def walk(self, at: State, heat: Heat, progress: Progress) -> list[State]:
        """Walks from a state; the shortest state of every batching on the way, the shortest first.

        Args:
            at: where to begin.
            heat: of the walk.
            progress: told how many tasks were placed since it was last asked; gives the share of
                the walk that is over.
        """
        at = self.begun(*at.start)
        met = {frozenset(at.running): at}
        placed = 0
        while (share := progress(placed)) < 1:
            at, placed = self._recut(at, heat.at(share))
            key = frozenset(at.running)
            if key not in met or at.makespan_us < met[key].makespan_us:
                met[key] = at
            if len(met) > 2 * _MET:
                met = dict(sorted(met.items(), key=_makespan_us)[:_MET])
        return [state for _, state in sorted(met.items(), key=_makespan_us)]

    def plan(self, state: State, problem: CascadeProblem) -> CascadePlan:
        """A state as a plan for the placement problem of its batching."""
        flat = Digest(problem)
        rows = dict(zip([cascade.id for cascade in problem.cascades], flat.cascades, strict=True))
        runs = []
        for i, devices in self._walks.runs(state.place):
            task = self._all.tasks[i]
            row = rows[self.digest.segments[task.cascade].id]
            runs.append((row[task.task], devices))
        return to_plan(flat, in_start_order(flat, left_shift(flat, runs)))

    def _goes_on(self, running: Sequence[int], choice: Choice, most_us: int) -> None:
        """Goes on from a choice where it ends by a time."""
        tasks = sorted(i for c in running for i in self._all.cascades[c])
        if self._walker.begin(choice, most_us, tasks) is not None:
            self._running = tuple(running)

    def _modes(self, deadline_us: int) -> list[Mode]:
        """The cheapest mode of every task for a deadline, its fastest where none fits."""
        modes: list[Mode] = []
        for kind in self.digest.kind_of:
            pick = self.digest.pick_for(kind, deadline_us) or 0
            modes += self.digest.fronts[kind][pick].modes
        return modes

    def _recut(self, at: State, heat: float) -> tuple[State, int]:
        """Walks from where it is, perhaps with other micro-batches, unless that ends too late.

        Gives where it is then, and how many tasks were placed.
        """
        steps = max(1, _REPAIR // len(at.place.order))
        old, new = self._other_cut(self._all.tasks[self._walker.task()].cascade)
        if new:
            choice = at.place.choice.copy()
            for k, candidate in enumerate(new):
                self._inherit(choice, candidate, old[min(k, len(old) - 1)], at.makespan_us)
            kept = [other for other in self._running if other not in old]
            self._goes_on([*kept, *new], choice, round((1 + _WORSE + heat) * at.makespan_us))
        self._walker.walk(steps, heat)
        found = self.now
        worse_us = -math.log(1 - self._rng.random()) * heat * at.makespan_us
        if found.makespan_us > at.makespan_us + worse_us:
            found = self.begun(*at.start)
        return found, steps * len(at.place.order)

    def _other_cut(self, c: int) -> tuple[list[int], list[int]]:
        """A running candidate, perhaps with a neighbour, and what may take their place, if any.

        It is cut in two, or joined with the neighbour, or a clip moves from one to the other.
        """
        rng, (family, first, size) = self._rng, self.digest.segments[c]
        ends = {(s.family, s.first + s.size): r for r, s in self._segments()}
        begins = {(s.family, s.first): r for r, s in self._segments()}
        others = [begins.get((family, first + size)), ends.get((family, first))]
        partners = [None] * (size > 1) + [o for o in others if o is not None]
        if not partners:
            return [c], []
        partner = rng.choice(partners)
        if partner is None:
            return [c], self._cut(family, first, size, rng.randrange(1, size))
        pair = sorted((c, partner), key=lambda r: self.digest.segments[r].first)
        left, right = (self.digest.segments[r] for r in pair)
        total = left.size + right.size
        at_size = rng.choice((total, total, left.size - 1, left.size + 1))
        return pair, self._cut(family, left.first, total, at_size)

    def _segments(self) -> list[tuple[int, Segment]]:
        return [(c, self.digest.segments[c]) for c in self._running]

    def _cut(self, family: int, first: int, total: int, size: int) -> list[int]:
        """Candidates for some clips, cut after so many; none where one is no candidate."""
        parts = [(first, size), (first + size, total - size)]
        found = [self._number.get(Segment(family, *part)) for part in parts if part[1] > 0]
        known = [c for c in found if c is not None]
        return known if size > 0 and len(known) == len(found) else []

    def _inherit(self, choice: Choice, candidate: int, old: int, makespan_us: int) -> None:
        """Gives a candidate priorities, nodes and perhaps degrees of another."""
        row, model = self._all.cascades[candidate], self._all.cascades[old]
        deadline_us = round(makespan_us * self._rng.uniform(*_DEADLINES))
        kind, keep = self.digest.kind_of[candidate], self._rng.random() < _KEEP
        pick = self.digest.fronts[kind][self.digest.pick_for(kind, deadline_us) or 0]
        for x, (i, mode) in enumerate(zip(row, pick.modes, strict=True)):
            j = model[min(x, len(model) - 1)]
            was = self._table.rows[j][choice.picks[j]]
            alike = self._all.tasks[i].mode(was.degree, was.kind) if keep else None
            mode = alike or mode
            choice.picks[i] = self._table.pick(i, mode.degree, mode.kind)
            choice.priority[i], choice.sites[i] = choice.priority[j], choice.sites[j]
            choice.groups[i] = FREE


def _makespan_us(met: tuple[frozenset[int], State]) -> int:
    return met[1].makespan_us
