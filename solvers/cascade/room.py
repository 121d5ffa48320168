"""Room for parked results: the solver's own account of memory over time, and plans that keep it.

A result is parked on its producer's devices, in equal slices, from the end of the producer to the
start of the task that takes it. Options that leave a reserve free make room for it, and so do
single tasks that compute their activations again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Option, Task
from arachne_opt.solvers.cascade.digest import Digest, Mode, binding_limits
from arachne_opt.solvers.cascade.schedule import Run, from_plan, left_shift, to_plan

# A plan by list scheduling, at once.
Quick = Callable[[CascadeProblem], CascadePlan]
# Shares of all that can be parked, tried one after the other; the last always suffices.
_RESERVE_SHARES = (8, 4, 2, 1)


class Room:
    """What the devices of a problem without forbidden ones can hold beside the tasks."""

    def __init__(self, problem: CascadeProblem) -> None:
        self._problem = problem
        self._memory = [d.device_type.memory_bytes for d in problem.cluster.devices]
        self._kind = [d.device_type.name for d in problem.cluster.devices]
        self._resident = dict(problem.resident_bytes)
        # More than all parked results can ever take on one device.
        self.most_parked = sum(self._widest_slices())

    def _widest_slices(self) -> Iterator[int]:
        for c, _, task in self._problem.tasks():
            for p in set(task.predecessors) if task.input_bytes else ():
                before = self._problem.cascades[c].tasks[p]
                least = min(o.degree for o in self._problem.usable_options(before))
                yield -(-task.input_bytes // least)

    def may_be_short(self) -> bool:
        """Whether some plan could exceed the memory of a device."""
        types = self._problem.cluster.device_types
        for name, kind in types.items():
            free = kind.memory_bytes - self.most_parked
            if self._resident.get(name, 0) > free:
                return True
            for _, _, task in self._problem.tasks():
                for o in self._problem.usable_options(task):
                    on_it = o.device_type in (None, name) and o.memory_bytes <= kind.memory_bytes
                    if on_it and o.memory_bytes > free:
                        return True
        return False

    def parked_where_short(self, plan: CascadePlan) -> int:
        """The most that is parked on a device when that exceeds its memory, 0 where none does."""
        return max((parked for parked, _ in self._shortages(plan)), default=0)

    def relieved(self, plan: CascadePlan) -> CascadePlan | None:
        """The plan with activations computed again where memory is short; None where that fails.

        Groups and order stay; what becomes longer moves the rest back.
        """
        again: set[tuple[int, int]] = set()
        while True:
            running = {(p.cascade, p.task) for _, tasks in self._shortages(plan) for p in tasks}
            if not running:
                return plan
            more = {key for key in running - again if self._can_recompute(*key)}
            if not more:
                return None
            again |= more
            digest = Digest(self._recomputing(again))
            schedule = from_plan(digest, plan)
            if schedule is None:
                return None
            plan = to_plan(digest, schedule)

    def _shortages(self, plan: CascadePlan) -> Iterator[tuple[int, list[Placement]]]:
        """What is parked, and the tasks that run, wherever both are too much for a device."""
        stays, runs = self._by_device(plan)
        for device, rows in stays.items():
            # Memory can only be short from the start of a stay or of a task on.
            moments = {s for s, _, _ in rows} | {p.start_us for p in runs.get(device, ())}
            for at in moments:
                parked = sum(size for s, e, size in rows if s <= at < e)
                running = [p for p in runs.get(device, ()) if p.start_us <= at < p.end_us]
                if parked and self._base(device, running) + parked > self._memory[device]:
                    yield parked, running

    def _base(self, device: int, running: list[Placement]) -> int:
        base = self._resident.get(self._kind[device], 0)
        for p in running:
            task = self._problem.cascades[p.cascade].tasks[p.task]
            option = task.option(p.degree, self._kind[device], recompute=p.recompute)
            base = max(base, option.memory_bytes if option else 0)
        return base

    def _can_recompute(self, cascade: int, task: int) -> bool:
        return any(o.recompute for o in self._problem.cascades[cascade].tasks[task].options)

    def _recomputing(self, chosen: Collection[tuple[int, int]]) -> CascadeProblem:
        """The problem in which some tasks compute activations again wherever they can."""

        def forced(task: Task) -> Task:
            again = {(o.degree, o.device_type) for o in task.options if o.recompute}
            options = (
                o for o in task.options if o.recompute or (o.degree, o.device_type) not in again
            )
            return replace(task, options=tuple(options))

        cascades = (
            replace(
                cascade,
                tasks=tuple(
                    forced(task) if (c, t) in chosen else task
                    for t, task in enumerate(cascade.tasks)
                ),
            )
            for c, cascade in enumerate(self._problem.cascades)
        )
        return replace(self._problem, cascades=tuple(cascades), resident_bytes=())

    def _by_device(
        self, plan: CascadePlan
    ) -> tuple[dict[int, list[tuple[int, int, int]]], dict[int, list[Placement]]]:
        placed = {(p.cascade, p.task): p for p in plan.placements}
        stays: dict[int, list[tuple[int, int, int]]] = {}
        runs: dict[int, list[Placement]] = {}
        for p in plan.placements:
            for d in p.devices:
                runs.setdefault(d, []).append(p)
            task = self._problem.cascades[p.cascade].tasks[p.task]
            for b in set(task.predecessors) if task.input_bytes else ():
                before = placed[p.cascade, b]
                size = -(-task.input_bytes // before.degree)
                for d in before.devices if before.end_us < p.start_us else ():
                    stays.setdefault(d, []).append((before.end_us, p.start_us, size))
        return stays, runs

    def with_reserve(self, reserve: int) -> CascadeProblem | None:
        """The problem with the options that leave a reserve free; None where a task has none.

        Without its resident bytes it is a problem like any other, and without a reserve one that
        every plan for this problem is a plan for.
        """
        if reserve == 0:
            return replace(self._problem, resident_bytes=())
        cascades = []
        for cascade in self._problem.cascades:
            tasks = []
            for task in cascade.tasks:
                options = tuple(self._leaving(task, reserve))
                if not options:
                    return None
                tasks.append(replace(task, options=options))
            cascades.append(replace(cascade, tasks=tuple(tasks)))
        found = replace(self._problem, cascades=tuple(cascades), resident_bytes=())
        return None if binding_limits(found) else found

    def _leaving(self, task: Task, reserve: int) -> Iterator[Option]:
        """The options that leave the reserve on devices of some type, one line per type."""
        types = self._problem.cluster.device_types
        for option in self._problem.usable_options(task):
            names = [option.device_type] if option.device_type else list(types)
            for name in names:
                if option.memory_bytes + reserve <= types[name].memory_bytes:
                    yield replace(option, device_type=name)

    def serial_plan(self) -> CascadePlan | None:
        """One task after the other on groups that share a device, so that little is parked.

        None where that is no legal plan.
        """
        every = {(c, t) for c, t, _ in self._problem.tasks()}
        digest = Digest(self._recomputing(every))
        for first in dict.fromkeys(self._kind.index(name) for name in self._kind):
            runs = list(self._serial_runs(digest, first))
            if len(runs) == len(digest.tasks):
                plan = to_plan(digest, left_shift(digest, runs))
                if not self.parked_where_short(plan):
                    return plan
        return None

    def _serial_runs(self, digest: Digest, first: int) -> Iterator[Run]:
        kind = digest.kind_of[first]
        same = [d for d in range(len(self._kind)) if digest.kind_of[d] == kind]
        for flat in digest.tasks:
            task = self._problem.cascades[flat.cascade].tasks[flat.task]
            devices = [d for d in same if flat.may_use((d,))]
            modes = [m for m in flat.modes if m.kind == kind]
            if first not in devices or not modes:
                return
            least = min(modes, key=lambda m: (_memory(task, m, self._kind[first]), m.degree))
            others = [d for d in devices if d != first]
            yield flat.index, tuple(sorted([first, *others[: least.degree - 1]]))


def _memory(task: Task, mode: Mode, kind: str) -> int:
    option = task.option(mode.degree, kind, recompute=mode.recompute)
    assert option is not None  # modes come from options
    return option.memory_bytes


def quick_fit(room: Room, quick: Quick) -> CascadePlan | None:
    """A plan that fits in little time: with rising reserves, else one task after the other."""
    for reserve in (0, *(room.most_parked // share for share in _RESERVE_SHARES)):
        problem = room.with_reserve(reserve)
        if problem is None:
            break
        plan = room.relieved(quick(problem))
        if plan is not None:
            return plan
    return room.serial_plan()
