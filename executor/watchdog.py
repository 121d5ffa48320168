"""Names the task and the rank when something fails or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arachne_opt.errors import ArachneError, RunError

# Collectives have the same limit and fail by themselves; the watchdog is for all else.
_GRACE_S = 5.0
_LOOK_EVERY_S = 0.5


class Watchdog:
    """Watches one rank.

    Args:
        rank: for messages.
        on_expire: called from a thread of its own with the error of a stuck task; there is no
            way to stop a stuck task from inside, so it should end the process. None: no thread.
    """

    def __init__(self, rank: int, on_expire: Callable[[RunError], None] | None = None) -> None:
        self.rank = rank
        self._on_expire = on_expire
        self._current: tuple[str, float, float] | None = None
        if on_expire is not None:
            threading.Thread(target=self._watch, daemon=True, name="arachne-watchdog").start()

    @contextmanager
    def task(self, label: str, limit_s: float) -> Iterator[None]:
        """Guards a task.

        Raises:
            RunError: what torch complains of, with the task and the rank.
        """
        self._current = label, time.monotonic() + limit_s + _GRACE_S, limit_s
        try:
            yield
        except ArachneError:
            raise
        except RuntimeError as error:  # torch's, among them out of memory and lost peers
            raise RunError(f"{label} failed: {error}", where=f"rank {self.rank}") from error
        finally:
            self._current = None

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            current = self._current
            if current is not None and time.monotonic() > current[1] and self._on_expire:
                what = f"{current[0]} is not done after {current[2]:.0f} s"
                hint = "a larger timeout_factor, or measured durations in the plan"
                self._on_expire(RunError(what, where=f"rank {self.rank}", hint=hint))
                return
