"""Tidying a schedule at a fixed makespan: earlier ends first, then fewer groups over nodes."""

from __future__ import annotations

from collections.abc import Callable

from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.placement import Choice, free_for, node_group
from arachne_opt.solvers.cascade.schedule import Schedule, in_start_order, left_shift

# A second pass finds little, a third hardly anything.
_PASSES = 2


def polish(digest: Digest, schedule: Schedule, over: Callable[[], bool]) -> Schedule:
    """The schedule or one that is better in (makespan, sum of ends, groups over nodes).

    Every task is offered the best group on each node at its place in the order, in its own and in
    every other mode.
    """
    for _ in range(_PASSES):
        before = schedule.key
        for position in range(len(schedule.runs)):
            if over():
                return schedule
            schedule = _at(digest, schedule, position)
        if schedule.key == before:
            break
    return schedule


def _at(digest: Digest, schedule: Schedule, position: int) -> Schedule:
    """The schedule with the first better group for the run at a position, if there is one."""
    index, present = schedule.runs[position]
    for choice in _groups(digest, schedule, position):
        if choice.devices == present or choice.end_us > schedule.ends_us[index]:
            continue
        runs = list(schedule.runs)
        runs[position] = index, choice.devices
        other = left_shift(digest, runs)
        if other.key < schedule.key:
            return in_start_order(digest, other)
    return schedule


def _groups(digest: Digest, schedule: Schedule, position: int) -> list[Choice]:
    """The best group of every mode on every node, given the runs before the position."""
    index, _ = schedule.runs[position]
    free = [0] * digest.device_count
    for earlier, devices in schedule.runs[:position]:
        for d in devices:
            free[d] = schedule.ends_us[earlier]
    task = digest.tasks[index]
    ready = max((schedule.ends_us[p] for p in task.predecessors), default=0)
    open_us = free_for(digest, index, free)
    return [
        node_group(node, open_us, ready, mode)
        for mode in task.modes
        for node in digest.nodes
        if node.kind == mode.kind and node.size >= mode.degree
    ]
