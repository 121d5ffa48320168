"""The one clock of a solve: time, or deterministic units of work."""

from __future__ import annotations

import time

from arachne_opt.solvers.base import Limits, StopCheck


class Clock:
    """Counts down the time limit; in deterministic mode it counts work that is reported to it."""

    def __init__(self, limits: Limits, should_stop: StopCheck | None = None) -> None:
        self._began = time.monotonic()
        self._limits = limits
        self._should_stop = should_stop
        self._spent = 0.0
        self.interrupted = False

    def wall_s(self) -> float:
        """Seconds since the solve began."""
        return time.monotonic() - self._began

    def spend(self, units: float) -> None:
        """Counts work that was done; matters in deterministic mode only."""
        self._spent += units

    def elapsed(self) -> float:
        """What is spent of the limit: seconds, or units of work."""
        return self._spent if self._limits.deterministic else self.wall_s()

    def left(self) -> float:
        """What is left of the limit, never negative."""
        return max(0.0, self._limits.time_limit_s - self.elapsed())

    def stopped(self) -> bool:
        """Whether somebody asked to stop; asks, and remembers the answer."""
        if not self.interrupted and self._should_stop is not None and self._should_stop():
            self.interrupted = True
        return self.interrupted

    def over(self) -> bool:
        """Whether the search must end now."""
        return self.stopped() or self.left() <= 0
