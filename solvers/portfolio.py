"""The cascade solvers: list schedules at once, then bounds and search, all on one clock."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

from arachne_opt import __version__
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.solvers.base import Limits, ProgressCallback, Result, Status, StopCheck
from arachne_opt.solvers.baselines.dynamic_cp import wave_runs
from arachne_opt.solvers.baselines.knapformer import best_bag_runs
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest, binding_limits
from arachne_opt.solvers.cascade.large import is_large
from arachne_opt.solvers.cascade.list_schedule import list_schedules
from arachne_opt.solvers.cascade.polish import polish
from arachne_opt.solvers.cascade.quick import quick_plan
from arachne_opt.solvers.cascade.room import Room
from arachne_opt.solvers.cascade.schedule import (
    Schedule,
    from_plan,
    in_start_order,
    left_shift,
    to_plan,
)
from arachne_opt.solvers.cascade.settle import settle
from arachne_opt.solvers.cascade.walks.walker import MOST_BESIDE
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.pinned import PinnedSearch
from arachne_opt.solvers.roomy import RoomySearch
from arachne_opt.solvers.search import SHORT_S, Parts, Search
from arachne_opt.solvers.seeding import Seeding
from arachne_opt.solvers.whole import to_whole, whole_progress

# Share of the time for list scheduling, where all rules take longer; peers' rules begin up to the
# other share.
_LIST_SHARE, _RULE_SHARE = 0.1, 0.2
# Schedules made where the search starts with pods.
_FEW_LISTS = 1
# Most of the time for plans that a learned policy draws before other searches, by share and in
# seconds.
_SEED_SHARE, _SEED_MOST = 0.35, 1.0
# The same where the search starts with pods, and most devices then.
_FEW_SEEDS_SHARE, _FEW_SEEDS_MOST, _FEW_SEEDS_DEVICES = 0.15, 0.4, 160
# Short searches give this share of the time to what was learned.
_SHORT_SHARE = 0.5


def solve_cascade(
    problem: CascadeProblem,
    limits: Limits,
    *,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: CascadePlan | None = None,
    parts: Parts | None = None,
) -> Result:
    """The best plan found within the limits, with a proven bound.

    Args:
        problem: what to place.
        limits: when to stop.
        on_progress: told every improvement, on the calling thread.
        should_stop: asked many times a second; the search ends as soon as it says yes.
        start_plan: a plan to improve; ignored where it does not fit the problem.
        parts: what the search may use; everything by default.

    Raises:
        MissingDependencyError: ortools is not installed.
    """
    search = parts or Parts()
    clock = Clock(limits, should_stop)
    return _solve(problem, limits, clock, on_progress, start_plan, "portfolio", search)


def solve_by_list(
    problem: CascadeProblem,
    limits: Limits,
    *,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: CascadePlan | None = None,
) -> Result:
    """The best plan of all rules of list scheduling, with the simple bounds; needs no package."""
    clock = Clock(limits, should_stop)
    return _solve(problem, limits, clock, on_progress, start_plan, "list", None)


def solve_exactly(
    problem: CascadeProblem,
    limits: Limits,
    *,
    on_progress: ProgressCallback | None = None,
    should_stop: StopCheck | None = None,
    start_plan: CascadePlan | None = None,
) -> Result:
    """The answer of CP-SAT alone: the pooled bound, then exact neighbourhoods of a list schedule.

    Raises:
        MissingDependencyError: ortools is not installed.
    """
    clock = Clock(limits, should_stop)
    parts = Parts(walks=False, pods=False)
    return _solve(problem, limits, clock, on_progress, start_plan, "cpsat", parts)


def _solve(
    problem: CascadeProblem,
    limits: Limits,
    clock: Clock,
    on_progress: ProgressCallback | None,
    start_plan: CascadePlan | None,
    name: str,
    parts: Parts | None,
) -> Result:
    """The common way: infeasible or digest, simple bound, list schedules, then the search."""
    if binding := binding_limits(problem):
        return infeasible(limits, clock, name, binding)
    if problem.forbidden_devices:
        part = usable_part(problem)
        start_plan = None if start_plan is None else part.from_whole(start_plan)
        told = on_progress and whole_progress(part, on_progress)
        return to_whole(part, _solve(part.problem, limits, clock, told, start_plan, name, parts))
    if problem.resident_bytes and (room := Room(problem)).may_be_short():

        def solve(
            part: CascadeProblem,
            within: Limits,
            until: Clock,
            told: ProgressCallback,
            start: CascadePlan | None,
        ) -> Result:
            return _solve(part, within, until, told, start, name, parts)

        return RoomySearch(room, limits, clock, solve, _quickly, on_progress).run(start_plan)
    digest = Digest(problem)
    best = Incumbent(digest, clock, on_progress)
    best.raise_bound(lower_bound(digest), "bounds")
    start = from_plan(digest, start_plan) if start_plan is not None else None
    if start is not None:
        start = in_start_order(digest, start)
        best.offer(start, "start plan")
    # Pods begin with better schedules of their own.
    few = parts is not None and parts.pods and is_large(digest)
    if start is None or parts is None or parts.lists:
        _offer_lists(digest, best, clock, limits, _FEW_LISTS if few else None)
    rules = _rules(digest, clock, limits) if parts is not None and parts.lists else []
    rule = min(rules, key=lambda schedule: schedule.key, default=None)
    ruled = rule is not None and best.offer(rule, "rule")
    seeding = None if parts is None else _seeded(digest, best, clock, limits, parts, few=few)
    if seeding is not None and limits.time_limit_s <= SHORT_S:
        # Where there is time, other beginnings lead further than changes of a list schedule.
        ruled |= seeding.leads
    if start is not None and parts is not None and not problem.pinned:
        settle(digest, _worth(start, rule, best, few), best, clock, limits)
    if parts is not None and problem.pinned:
        # The other search does not know pins.
        PinnedSearch(digest, best, clock, limits, parts).run()
    elif parts is not None:
        # What was given had its share, and is gone back to as long as it is the best.
        begin = best.schedule if ruled else None
        Search(digest, best, clock, limits, parts, begin, seeding).run()
    return _finish(best, limits, clock, digest, name)


def _worth(
    start: Schedule, rule: Schedule | None, best: Incumbent, few: bool
) -> tuple[Schedule, ...]:
    """What to search around where a plan was given: that plan, unless something quick is better.

    Pods have plans of their own before long, and need the time.
    """
    assert best.schedule is not None  # at least what was given
    if few or start.makespan_us > best.schedule.makespan_us:
        return ()
    return (start,) if rule is None else (start, rule)


def _quickly(problem: CascadeProblem) -> CascadePlan:
    return quick_plan(problem)[0]


def _offer_lists(
    digest: Digest, best: Incumbent, clock: Clock, limits: Limits, most: int | None
) -> None:
    for schedule in islice(list_schedules(digest, best.bound_us), most):
        best.offer(in_start_order(digest, schedule), "list")
        late = clock.wall_s() > _LIST_SHARE * limits.time_limit_s
        if clock.over() or (late and not limits.deterministic):
            break


def _rules(digest: Digest, clock: Clock, limits: Limits) -> list[Schedule]:
    """What the peers' quick rules give.

    They keep a cascade on one group: where hand-offs weigh, that is a good beginning.
    """
    found = []
    for rule in (best_bag_runs, wave_runs):
        late = clock.wall_s() > _RULE_SHARE * limits.time_limit_s
        if clock.over() or digest.problem.pinned or (late and not limits.deterministic):
            break
        runs = rule(digest)
        if runs is not None:
            found.append(in_start_order(digest, left_shift(digest, runs)))
    return found


def _seeded(
    digest: Digest, best: Incumbent, clock: Clock, limits: Limits, parts: Parts, *, few: bool
) -> Seeding | None:
    """What a learned policy begins, after its first turn; None where it has too little to say."""
    # On many devices in pods a policy makes too few plans to matter.
    many = few and digest.device_count > _FEW_SEEDS_DEVICES
    if parts.policy is None or many or digest.problem.pinned:
        return None
    seeding = Seeding(digest, best, clock, parts.policy, limits.seed)
    if not clock.over() and best.gap() > limits.gap:
        others = 0 if limits.deterministic else min(limits.workers - 1, MOST_BESIDE)
        seeding.run_with(others, _seeding_s(limits, few=few), clock.over)
    return seeding


def _seeding_s(limits: Limits, *, few: bool) -> float:
    """Time for plans that a learned policy draws before other searches."""
    if limits.time_limit_s <= SHORT_S:
        return _SHORT_SHARE * limits.time_limit_s
    share, most = (_FEW_SEEDS_SHARE, _FEW_SEEDS_MOST) if few else (_SEED_SHARE, _SEED_MOST)
    return min(share * limits.time_limit_s, most)


def _finish(best: Incumbent, limits: Limits, clock: Clock, digest: Digest, solver: str) -> Result:
    """The result of a search that has ended, with its plan tidied up at the same makespan."""
    assert best.schedule is not None  # list scheduling always finds a plan
    patience_s = 0.02 * limits.time_limit_s if not limits.deterministic else None
    schedule = polish(digest, best.schedule, _until(clock, patience_s))
    best.offer(schedule, "polish")
    done = schedule.makespan_us <= best.bound_us
    return Result(
        status=Status.OPTIMAL if done else Status.FEASIBLE,
        plan=to_plan(digest, schedule),
        objective_us=schedule.makespan_us,
        bound_us=best.bound_us,
        solver=solver,
        seed=limits.seed,
        wall_s=clock.wall_s(),
        versions=_versions(solver),
        history=tuple(best.history),
        interrupted=clock.interrupted,
    )


def _until(clock: Clock, patience_s: float | None) -> Callable[[], bool]:
    end = None if patience_s is None else clock.wall_s() + min(0.2, patience_s)
    return lambda: clock.interrupted or (end is not None and clock.wall_s() > end)


def _versions(solver: str) -> dict[str, str]:
    versions = {"arachne-opt": __version__}
    if solver != "list":
        try:
            versions["ortools"] = version("ortools")
        except PackageNotFoundError:
            versions["ortools"] = "unknown"
    return versions


def infeasible(limits: Limits, clock: Clock, solver: str, binding: tuple[str, ...]) -> Result:
    """The result for a problem without any plan, with the limits that bind."""
    return Result(
        status=Status.INFEASIBLE,
        plan=None,
        objective_us=None,
        bound_us=0,
        solver=solver,
        seed=limits.seed,
        wall_s=clock.wall_s(),
        versions=_versions(solver),
        binding=binding,
    )
