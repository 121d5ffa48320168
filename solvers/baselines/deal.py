"""What the peers' rules share: groups of neighbouring devices that work off cascades in order."""

from __future__ import annotations

import time
from collections.abc import Sequence

from arachne_opt import __version__
from arachne_opt.solvers.base import Limits, Result, Status
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest, FlatTask
from arachne_opt.solvers.cascade.schedule import Run, in_start_order, left_shift, to_plan

Group = tuple[int, ...]


def neighbour_groups(digest: Digest, degree: int) -> list[Group]:
    """Groups of ``degree`` devices next to each other, of one type each; a rest stays idle."""
    groups = []
    for kind in range(len(digest.kind_names)):
        devices = [d for d in range(digest.device_count) if digest.kind_of[d] == kind]
        whole = len(devices) // degree * degree
        groups += [tuple(devices[at : at + degree]) for at in range(0, whole, degree)]
    return groups


def seat(digest: Digest, sizes: Sequence[int]) -> list[Group] | None:
    """A group for each size, in the order of the sizes; None where the devices do not suffice.

    For rules that name sizes but no devices, on one device type. Widest first, each on the fullest
    node that holds it, else on the first free devices: the mildest penalties that are easy to get.
    """
    if sum(sizes) > digest.device_count:
        return None
    free = [list(node.devices) for node in digest.nodes]
    groups: list[Group] = [()] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[index]
        roomy = [row for row in free if len(row) >= size]
        if roomy:
            row = min(roomy, key=len)
            groups[index] = tuple(row[:size])
            del row[:size]
            continue
        taken: list[int] = []
        for row in free:
            part = row[: size - len(taken)]
            del row[: len(part)]
            taken += part
        groups[index] = tuple(taken)
    return groups


def exact_runs(digest: Digest, cascade: int, group: Group) -> list[Run] | None:
    """The tasks of a cascade on a group; None where its last task lacks the group's degree."""
    runs = runs_on(digest, cascade, group)
    return runs if runs is not None and len(runs[-1][1]) == len(group) else None


def times_us(digest: Digest, cascade: int) -> dict[int, int]:
    """Time of a cascade on one node by degree of its last task, earlier ones at most as wide.

    On one device type; tasks follow one another.
    """
    row = digest.cascades[cascade]
    times: dict[int, int] = {}
    for last in digest.tasks[row[-1]].modes:
        widths = [widest(digest.tasks[task], 0, last.degree) for task in row]
        modes = [
            digest.tasks[task].mode(width, 0)
            for task, width in zip(row, widths, strict=True)
            if width is not None
        ]
        if len(modes) == len(row):
            times[last.degree] = sum(mode.duration_us for mode in modes if mode is not None)
    return times


def runs_on(digest: Digest, cascade: int, group: Group) -> list[Run] | None:
    """The tasks of a cascade, one after the other on a group; None where one cannot run there.

    A task that lacks the group's degree takes the largest smaller one that it has.
    """
    runs = []
    for index in digest.cascades[cascade]:
        width = widest(digest.tasks[index], digest.kind_of[group[0]], len(group))
        if width is None:
            return None
        runs.append((index, group[:width]))
    return runs


def widest(task: FlatTask, kind: int, limit: int) -> int | None:
    """The largest degree of a task on a device type up to a limit, None where there is none."""
    fitting = [m.degree for m in task.modes if m.kind == kind and m.degree <= limit]
    return max(fitting, default=None)


def finish(
    digest: Digest, runs: Sequence[Run] | None, limits: Limits, name: str, begin_s: float
) -> Result:
    """The result of a rule: its plan with penalties charged, or none where it does not apply."""
    versions = {"arachne-opt": __version__}
    bound_us = lower_bound(digest)
    if runs is None:
        return Result(
            status=Status.NO_PLAN,
            plan=None,
            objective_us=None,
            bound_us=bound_us,
            solver=name,
            seed=limits.seed,
            wall_s=time.perf_counter() - begin_s,
            versions=versions,
        )
    schedule = in_start_order(digest, left_shift(digest, runs))
    best = schedule.makespan_us <= bound_us
    return Result(
        status=Status.OPTIMAL if best else Status.FEASIBLE,
        plan=to_plan(digest, schedule),
        objective_us=schedule.makespan_us,
        bound_us=bound_us,
        solver=name,
        seed=limits.seed,
        wall_s=time.perf_counter() - begin_s,
        versions=versions,
    )
