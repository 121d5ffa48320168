"""Plans whose parked results fit: solve, look at memory over time, solve again with a reserve.

Where tasks can compute their activations again, a plan that is short of memory is first tried with
those tasks doing so that run while it is short.

The first solve has all options: its bound holds for the whole problem, as memory over time only
forbids plans. Later ones keep a reserve free on every device; their bounds say nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Progress, ProgressCallback, Result, Status
from arachne_opt.solvers.cascade.room import Quick, Room, quick_fit
from arachne_opt.solvers.clock import Clock

# Shares of the time: all options first, which nearly always fits, then the same again or with
# reserves.
_FIRST, _LATER = 0.94, (0.03, 0.02, 0.01)

# Solves a problem within limits, from a plan, on a clock.
Solve = Callable[[CascadeProblem, Limits, Clock, ProgressCallback, CascadePlan | None], Result]


class RoomySearch:
    """One solve with memory over time."""

    def __init__(
        self,
        room: Room,
        limits: Limits,
        clock: Clock,
        solve: Solve,
        quick: Quick,
        on_progress: ProgressCallback | None,
    ) -> None:
        self._room = room
        self._limits = limits
        self._clock = clock
        self._solve = solve
        self._quick = quick
        self._on_progress = on_progress
        self._plan: CascadePlan | None = None
        self._bound_us = 0
        self._history: list[Progress] = []

    def run(self, start: CascadePlan | None) -> Result:
        """The best plan that fits, with the bound of the first solve; none where none was found."""
        first = self._attempt(0, _FIRST, start)
        assert first is not None  # without a reserve all options stay
        assert first.plan is not None
        short = self._room.parked_where_short(first.plan)
        if not short:
            if self._unfinished():
                self._attempt(0, sum(_LATER), self._plan)
            return self._result(first)
        for share in _LATER:
            if self._clock.over():
                break
            again = self._attempt(short, share, self._plan)
            if again is None or again.plan is None:
                break
            excess = self._room.parked_where_short(again.plan)
            if not excess:
                break
            short = max(2 * short, excess)
        if self._plan is None:
            self._offer(quick_fit(self._room, self._quick), "list")
        return self._result(first)

    def _unfinished(self) -> bool:
        assert self._plan is not None
        gap = self._limits.gap
        return self._plan.makespan_us > self._bound_us * (1 + gap) and not self._clock.over()

    def _attempt(self, reserve: int, share: float, start: CascadePlan | None) -> Result | None:
        """A solve with a reserve; None where a task has no option that leaves it free."""
        problem = self._room.with_reserve(reserve)
        if problem is None:
            return None
        limits = replace(self._limits, time_limit_s=share * self._limits.time_limit_s)
        clock = Clock(limits, self._clock.stopped)
        began_s = self._clock.wall_s()

        def told(event: Progress) -> None:
            self._tell(event, reserve, began_s)

        result = self._solve(problem, limits, clock, told, start)
        self._clock.spend(limits.time_limit_s)
        if reserve == 0:
            self._bound_us = max(self._bound_us, result.bound_us)
        self._offer(result.plan, result.solver)
        return result

    def _tell(self, event: Progress, reserve: int, began_s: float) -> None:
        """Passes on bounds of the whole problem and plans that fit."""
        if reserve == 0 and event.bound_us > self._bound_us:
            self._bound_us = event.bound_us
            self._report(event.source, began_s + event.elapsed_s, new_plan=False)
        self._offer(event.plan, event.source, began_s + event.elapsed_s)

    def _offer(self, plan: CascadePlan | None, source: str, elapsed_s: float | None = None) -> None:
        """Takes a plan that is better and fits, if need be with activations computed again."""
        if plan is None or (self._plan and plan.makespan_us >= self._plan.makespan_us):
            return
        plan = self._room.relieved(plan)
        if plan is None or (self._plan and plan.makespan_us >= self._plan.makespan_us):
            return
        self._plan = plan
        self._report(source, elapsed_s or self._clock.wall_s(), new_plan=True)

    def _report(self, source: str, elapsed_s: float, *, new_plan: bool) -> None:
        event = Progress(
            elapsed_s=elapsed_s,
            objective_us=self._plan.makespan_us if self._plan else None,
            bound_us=self._bound_us,
            source=source,
            plan=self._plan if new_plan else None,
        )
        self._history.append(event)
        if self._on_progress is not None:
            self._on_progress(event)

    def _result(self, first: Result) -> Result:
        plan = self._plan
        best_us = None if plan is None else plan.makespan_us
        status = Status.NO_PLAN
        if best_us is not None:
            status = Status.OPTIMAL if best_us <= self._bound_us else Status.FEASIBLE
        return replace(
            first,
            status=status,
            plan=plan,
            objective_us=best_us,
            bound_us=self._bound_us,
            wall_s=self._clock.wall_s(),
            history=tuple(self._history),
            interrupted=self._clock.interrupted,
        )
