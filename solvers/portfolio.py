"""The cascade solver: list schedules at once, then bounds and search, all on one clock."""

from __future__ import annotations

from arachne_opt import __version__
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, ProgressCallback, Result, Status, StopCheck
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest, binding_limits
from arachne_opt.solvers.cascade.list_schedule import list_schedules
from arachne_opt.solvers.cascade.schedule import from_plan, in_start_order, to_plan
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.search import Search

# Share of the time for list scheduling, where all rules take longer.
_LIST_SHARE = 0.1


def solve_cascade(
    problem: CascadeProblem,
    limits: Limits,
    *,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: CascadePlan | None = None,
) -> Result:
    """The best plan found within the limits, with a proven bound."""
    clock = Clock(limits, should_stop)
    binding = binding_limits(problem)
    if binding:
        return infeasible(problem, limits, clock, "portfolio", binding)
    digest = Digest(problem)
    best = Incumbent(digest, clock, on_progress)
    best.raise_bound(lower_bound(digest), "bounds")
    if start_plan is not None:
        start = from_plan(digest, start_plan)
        if start is not None:
            best.offer(in_start_order(digest, start), "start plan")
    for schedule in list_schedules(digest, best.bound_us):
        best.offer(in_start_order(digest, schedule), "list")
        if clock.over() or clock.wall_s() > _LIST_SHARE * limits.time_limit_s:
            break
    Search(digest, best, clock, limits).run()
    return finish(best, limits, clock, digest, "portfolio")


def finish(best: Incumbent, limits: Limits, clock: Clock, digest: Digest, solver: str) -> Result:
    """The result of a search that has ended."""
    schedule = best.schedule
    assert schedule is not None  # list scheduling always finds a plan
    done = schedule.makespan_us <= best.bound_us
    return Result(
        status=Status.OPTIMAL if done else Status.FEASIBLE,
        plan=to_plan(digest, schedule),
        objective_us=schedule.makespan_us,
        bound_us=best.bound_us,
        solver=solver,
        seed=limits.seed,
        wall_s=clock.wall_s(),
        versions={"arachne-opt": __version__},
        history=tuple(best.history),
        interrupted=clock.interrupted,
    )


def infeasible(
    problem: CascadeProblem, limits: Limits, clock: Clock, solver: str, binding: tuple[str, ...]
) -> Result:
    """The result for a problem without any plan, with the limits that bind."""
    return Result(
        status=Status.INFEASIBLE,
        plan=None,
        objective_us=None,
        bound_us=0,
        solver=solver,
        seed=limits.seed,
        wall_s=clock.wall_s(),
        versions={"arachne-opt": __version__},
        binding=binding,
    )
