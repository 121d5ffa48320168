"""Search over batchings: annealing of list schedules that changes micro-batches, too.

All candidates are cascades of one digest, and a state runs some of them: those that hold every
clip once. Its list schedule is exact, so that a better one is a better plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from arachne_opt.cascade.batching import Batching, Segment
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.changes import Changes, Choice
from arachne_opt.solvers.cascade.decoder import useful_modes
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.list_schedule import RULES, priorities
from arachne_opt.solvers.cascade.list_walk import anneal
from arachne_opt.solvers.cascade.quick_list import ANY_US, Listed, QuickList
from arachne_opt.solvers.cascade.schedule import in_start_order, left_shift, to_plan

# Share of the changes that change micro-batches; of these, those that keep the degrees as far as
# they can; deadlines for the degrees of the others, in parts of the makespan.
_RECUT, _KEEP, _DEADLINES = 0.3, 0.5, (0.3, 1.0)
_SEED_STRETCHES = (1.0, 1.05, 1.12, 1.25, 1.5, 2.0)


# For each candidate that runs: degree, device type and priority of its tasks.
Packed = tuple[tuple[int, tuple[tuple[int, int, int], ...]], ...]


class State(NamedTuple):
    """Candidates that run, modes and priorities of all tasks, and the list schedule."""

    running: tuple[int, ...]
    choice: Choice
    listed: Listed


class BatchingSearch:
    """Annealing over states; keeps the best."""

    def __init__(self, digest: BatchingDigest, bound_us: int, seed: int) -> None:
        self.digest = digest
        self._bound_us = bound_us
        self._rng = random.Random(seed)
        self._all = digest.candidates
        self._number = {segment: c for c, segment in enumerate(digest.segments)}
        self._lists = QuickList(self._all)
        self._changes = Changes(self._all, [useful_modes(t) for t in self._all.tasks], seed)
        self._best: State | None = None
        self.tried = 0

    @property
    def best(self) -> State:
        """The best state so far; there has to be one."""
        assert self._best is not None
        return self._best

    def batching(self, state: State) -> Batching:
        """The sizes by family."""
        rows: dict[int, list[int]] = {}
        for segment in sorted(self.digest.segments[c] for c in state.running):
            rows.setdefault(segment.family, []).append(segment.size)
        return tuple(tuple(rows[f]) for f in sorted(rows))

    def seed(self, batching: Batching) -> int:
        """Tries a batching with the cheapest degrees for several deadlines; says how many."""
        running = [self._number[s] for s in self.digest.problem.segments(batching)]
        for stretch in _SEED_STRETCHES:
            modes = self._modes(round(self._bound_us * stretch))
            for rule in RULES:
                choice = Choice(modes, priorities(self._all, modes, rule))
                most_us = ANY_US if self._best is None else self._best.listed.makespan_us
                self._keep(self._state(tuple(running), choice, most_us))
        return len(_SEED_STRETCHES) * len(RULES)

    def start(self, problem: CascadeProblem, plan: CascadePlan) -> State:
        """The state with the degrees and the order of a plan for a batching."""
        modes = self._modes(plan.makespan_us)
        priority = [0] * len(modes)
        number = {s.id: c for s, c in self._number.items()}
        running = [number[cascade.id] for cascade in problem.cascades]
        for p in plan.placements:
            i = self._all.cascades[running[p.cascade]][p.task]
            mode = self._all.tasks[i].mode(p.degree, self._all.kind_of[p.devices[0]])
            modes[i], priority[i] = mode or modes[i], -p.start_us
        return self._begun(running, Choice(modes, priority))

    def packed(self, state: State) -> Packed:
        """A state for another process."""
        modes, priority = state.choice
        rows = self._all.cascades
        return tuple(
            (c, tuple((modes[i].degree, modes[i].kind, priority[i]) for i in rows[c]))
            for c in state.running
        )

    def unpacked(self, packed: Packed) -> State:
        """The state that another process has packed."""
        modes = self._modes(self._bound_us)
        priority = [0] * len(modes)
        for c, row in packed:
            for i, (degree, kind, rank) in zip(self._all.cascades[c], row, strict=True):
                mode = self._all.tasks[i].mode(degree, kind)
                assert mode is not None  # both processes have the same candidates
                modes[i], priority[i] = mode, rank
        return self._begun([c for c, _ in packed], Choice(modes, priority))

    def anneal(self, at: State, progress: Callable[[], float]) -> None:
        """Walks from a state until ``progress``, between 0 and 1, reaches 1."""
        for state in anneal(at, self._near, progress, self._rng):
            self._keep(state)

    def plan(self, state: State, problem: CascadeProblem) -> CascadePlan:
        """A state as a plan for the placement problem of its batching."""
        flat = Digest(problem)
        rows = dict(zip([cascade.id for cascade in problem.cascades], flat.cascades, strict=True))
        runs = []
        for i, devices in self._lists.runs(state.listed):
            task = self._all.tasks[i]
            row = rows[self.digest.segments[task.cascade].id]
            runs.append((row[task.task], devices))
        return to_plan(flat, in_start_order(flat, left_shift(flat, runs)))

    def _begun(self, running: list[int], choice: Choice) -> State:
        """The state of a choice, however long it takes."""
        state = self._state(tuple(running), choice, ANY_US)
        assert state is not None
        self._keep(state)
        return state

    def _keep(self, state: State | None) -> None:
        if state is not None and (self._best is None or state.listed.key < self._best.listed.key):
            self._best = state

    def _state(
        self, running: tuple[int, ...], choice: Choice, most_us: int, like: Listed | None = None
    ) -> State | None:
        self.tried += 1
        tasks = sorted(i for c in running for i in self._all.cascades[c])
        listed = self._lists.decode(*choice, most_us, like, tasks)
        return None if listed is None else State(running, choice, listed)

    def _modes(self, deadline_us: int) -> list[Mode]:
        """The cheapest mode of every task for a deadline, its fastest where none fits."""
        modes: list[Mode] = []
        for kind in self.digest.kind_of:
            pick = self.digest.pick_for(kind, deadline_us) or 0
            modes += self.digest.fronts[kind][pick].modes
        return modes

    def _near(self, at: State, most_us: int) -> State | None:
        """A state one change away that ends by a time, None where the one drawn does not."""
        if self._rng.random() >= _RECUT:
            choice = self._changes.near(at.choice, at.listed)
            return self._state(at.running, choice, most_us, at.listed)
        c = self._all.tasks[self._changes.task(at.listed)].cascade
        old, new = self._other_cut(at, c)
        if not new:
            return None
        choice = Choice(list(at.choice.modes), list(at.choice.priority))
        for k, candidate in enumerate(new):
            self._inherit(choice, candidate, old[min(k, len(old) - 1)], at.listed.makespan_us)
        kept = tuple(other for other in at.running if other not in old)
        return self._state((*kept, *new), choice, most_us, at.listed)

    def _other_cut(self, at: State, c: int) -> tuple[list[int], list[int]]:
        """A running candidate, perhaps with a neighbour, and what may take their place, if any.

        It is cut in two, or joined with the neighbour, or a clip moves from one to the other.
        """
        rng, (family, first, size) = self._rng, self.digest.segments[c]
        ends = {(s.family, s.first + s.size): r for r, s in self._segments(at)}
        begins = {(s.family, s.first): r for r, s in self._segments(at)}
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

    def _segments(self, state: State) -> list[tuple[int, Segment]]:
        return [(c, self.digest.segments[c]) for c in state.running]

    def _cut(self, family: int, first: int, total: int, size: int) -> list[int]:
        """Candidates for some clips, cut after so many; none where one is no candidate."""
        parts = [(first, size), (first + size, total - size)]
        found = [self._number.get(Segment(family, *part)) for part in parts if part[1] > 0]
        known = [c for c in found if c is not None]
        return known if size > 0 and len(known) == len(found) else []

    def _inherit(self, choice: Choice, candidate: int, old: int, makespan_us: int) -> None:
        """Gives a candidate the priorities of another, and its degrees or those for a deadline."""
        row, model = self._all.cascades[candidate], self._all.cascades[old]
        deadline_us = round(makespan_us * self._rng.uniform(*_DEADLINES))
        kind, keep = self.digest.kind_of[candidate], self._rng.random() < _KEEP
        pick = self.digest.fronts[kind][self.digest.pick_for(kind, deadline_us) or 0]
        for x, (i, mode) in enumerate(zip(row, pick.modes, strict=True)):
            j = model[min(x, len(model) - 1)]
            was = choice.modes[j]
            alike = self._all.tasks[i].mode(was.degree, was.kind) if keep else None
            choice.modes[i] = alike or mode
            choice.priority[i] = choice.priority[j]
