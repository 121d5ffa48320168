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
