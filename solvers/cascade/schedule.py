"""Schedules: runs in a fixed order, each as early as its devices and predecessors allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.solvers.cascade.digest import Digest, Mode

# A task and the group that it runs on, devices in rising order.
Run = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Runs in order with their times by task number.

    Args:
        cross_node: number of groups that span nodes.
    """

    runs: tuple[Run, ...]
    starts_us: tuple[int, ...]
    ends_us: tuple[int, ...]
    cross_node: int

    @property
    def makespan_us(self) -> int:
        """End of the last task."""
        return max(self.ends_us)

    @property
    def key(self) -> tuple[int, int, int]:
        """What is minimised, in order: makespan, sum of ends, groups over several nodes."""
        return max(self.ends_us), sum(self.ends_us), self.cross_node


def left_shift(digest: Digest, runs: Iterable[Run]) -> Schedule:
    """The schedule in which every run of an order starts as early as it can.

    start(i) = max(free(d) for its devices d, end(p) + hand-off(p, i) for its predecessors p);
    predecessors stand before their successors in the order.
    """
    order = tuple(runs)
    count = len(digest.tasks)
    free = [0] * digest.device_count
    starts, ends, cross = [0] * count, [0] * count, 0
    groups: list[tuple[int, ...]] = [()] * count
    for index, devices in order:
        start = max(free[d] for d in devices)
        for p in digest.tasks[index].predecessors:
            wait = digest.handoff_us(index, groups[p], devices)
            start = max(start, ends[p] + wait)
        end = start + digest.duration_us(index, devices)
        starts[index], ends[index], groups[index] = start, end, devices
        cross += digest.node_of[devices[0]] != digest.node_of[devices[-1]]
        for d in devices:
            free[d] = end
    return Schedule(runs=order, starts_us=tuple(starts), ends_us=tuple(ends), cross_node=cross)


def in_start_order(digest: Digest, schedule: Schedule) -> Schedule:
    """The same runs ordered by start and shifted left again, until nothing moves."""
    while True:
        starts = schedule.starts_us
        runs = sorted(schedule.runs, key=lambda run: (starts[run[0]], run[0]))
        again = left_shift(digest, runs)
        if again.starts_us == starts:
            return again
        schedule = again


def to_plan(digest: Digest, schedule: Schedule) -> CascadePlan:
    """The schedule as a plan."""

    def mode(index: int, devices: tuple[int, ...]) -> Mode:
        found = digest.tasks[index].mode(len(devices), digest.kind_of[devices[0]])
        assert found is not None  # schedules use modes of their tasks
        return found

    placements = tuple(
        Placement(
            cascade=digest.tasks[index].cascade,
            task=digest.tasks[index].task,
            devices=devices,
            start_us=schedule.starts_us[index],
            end_us=schedule.ends_us[index],
            recompute=mode(index, devices).recompute,
        )
        for index, devices in schedule.runs
    )
    return CascadePlan(problem_name=digest.problem.name, placements=placements)


def from_plan(digest: Digest, plan: CascadePlan) -> Schedule | None:
    """The left-shifted schedule of a plan, None where it is no complete legal plan.

    A plan kept for another problem may lack tasks, or use degrees or devices that are gone.
    """
    number = {(t.cascade, t.task): t.index for t in digest.tasks}
    runs: list[Run] = []
    placed: set[int] = set()
    for p in plan.placements:
        index = number.pop((p.cascade, p.task), None)
        if index is None or not _is_group(digest, index, p.devices):
            return None
        if not placed.issuperset(digest.tasks[index].predecessors):
            return None
        placed.add(index)
        runs.append((index, tuple(sorted(p.devices))))
    return None if number else left_shift(digest, runs)


def _is_group(digest: Digest, index: int, devices: Sequence[int]) -> bool:
    known = set(devices)
    if len(known) != len(devices) or not known <= set(range(digest.device_count)):
        return False
    kinds = {digest.kind_of[d] for d in known}
    if not digest.tasks[index].may_use(known):
        return False
    return len(kinds) == 1 and digest.tasks[index].mode(len(known), kinds.pop()) is not None
