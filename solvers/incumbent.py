"""Best plan and best bound so far, with every improvement reported."""

from __future__ import annotations

from arachne_opt.solvers.base import Progress, ProgressCallback
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Schedule, to_plan
from arachne_opt.solvers.clock import Clock


class Incumbent:
    """Keeps the better of all schedules and the highest of all bounds."""

    def __init__(self, digest: Digest, clock: Clock, on_progress: ProgressCallback | None) -> None:
        self._digest = digest
        self._clock = clock
        self._on_progress = on_progress
        self.schedule: Schedule | None = None
        self.bound_us = 0
        self.history: list[Progress] = []

    def offer(self, schedule: Schedule, source: str) -> bool:
        """Takes a schedule if it is better; says whether it was."""
        if self.schedule is not None and schedule.key >= self.schedule.key:
            return False
        shorter = self.schedule is None or schedule.makespan_us < self.schedule.makespan_us
        self.schedule = schedule
        if shorter:
            self._report(source, with_plan=True)
        return True

    def raise_bound(self, bound_us: int, source: str) -> None:
        """Takes a proven lower bound if it is higher."""
        if bound_us > self.bound_us:
            self.bound_us = bound_us
            self._report(source, with_plan=False)

    def gap(self) -> float:
        """(objective - bound) / bound, infinite without a plan or a bound."""
        if self.schedule is None or self.bound_us <= 0:
            return float("inf")
        return (self.schedule.makespan_us - self.bound_us) / self.bound_us

    def _report(self, source: str, *, with_plan: bool) -> None:
        plan = to_plan(self._digest, self.schedule) if with_plan and self.schedule else None
        event = Progress(
            elapsed_s=self._clock.wall_s(),
            objective_us=self.schedule.makespan_us if self.schedule else None,
            bound_us=self.bound_us,
            source=source,
            plan=plan,
        )
        self.history.append(event)
        if self._on_progress is not None:
            self._on_progress(event)
