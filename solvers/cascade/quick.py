"""A plan in milliseconds: list schedules and simple bounds, without any solver library."""

from __future__ import annotations

import time

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.errors import InfeasibleError, NoPlanError
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest, binding_limits
from arachne_opt.solvers.cascade.list_schedule import list_schedules
from arachne_opt.solvers.cascade.room import Room, quick_fit
from arachne_opt.solvers.cascade.schedule import in_start_order, to_plan


def quick_plan(problem: CascadeProblem, *, patience_s: float = 0.05) -> tuple[CascadePlan, int]:
    """A plan by list scheduling, and a lower bound of the makespan in µs.

    Args:
        problem: what to place.
        patience_s: no further rule is tried after this time; the first one always is.

    Raises:
        InfeasibleError: a task can run nowhere.
        NoPlanError: no list schedule keeps the memory over time.
    """
    if binding := binding_limits(problem):
        raise InfeasibleError("no plan exists: " + "; ".join(binding), where=problem.name)
    if problem.forbidden_devices:
        part = usable_part(problem)
        plan, bound_us = quick_plan(part.problem, patience_s=patience_s)
        return part.to_whole(plan), bound_us
    if problem.resident_bytes and (room := Room(problem)).may_be_short():
        found = quick_fit(room, lambda part: quick_plan(part, patience_s=patience_s)[0])
        if found is None:
            what = "no plan was found whose parked results fit the memory"
            raise NoPlanError(what, where=problem.name, hint="a search, or more memory")
        return found, lower_bound(Digest(problem))
    began_s = time.monotonic()
    digest = Digest(problem)
    bound_us = lower_bound(digest)
    best = None
    for schedule in list_schedules(digest, bound_us):
        if best is None or schedule.key < best.key:
            best = schedule
        if time.monotonic() - began_s > patience_s:
            break
    assert best is not None  # list scheduling always finds a plan
    return to_plan(digest, in_start_order(digest, best)), bound_us
