"""How long to wait for another process, and whom to tell meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When waiting ends.

    Args:
        on_wait: told at every try in vain for how many seconds it has lasted.
        should_stop: asked at every try; yes ends the waiting.
    """

    timeout_s: float
    on_wait: Callable[[float], None] | None = None
    should_stop: Callable[[], bool] | None = None

    def until(self, attempt: Callable[[], bool], pause_s: float) -> bool:
        """Tries until that succeeds, which is True, or the patience ends."""
        begin = time.monotonic()
        while not attempt():
            waited_s = time.monotonic() - begin
            stopped = self.should_stop is not None and self.should_stop()
            if waited_s >= self.timeout_s or stopped:
                return False
            if self.on_wait is not None:
                self.on_wait(waited_s)
            time.sleep(min(pause_s, self.timeout_s - waited_s))
        return True
