"""Names the task and the rank when something fails or hangs."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from arachne_opt.errors import ArachneError, RunError
from arachne_opt.executor.positions import PositionBoard

# Collectives have the same limit and fail by themselves; the watchdog is for all else.
_GRACE_S = 5.0
_LOOK_EVERY_S = 0.5
_ANSWER_PATIENCE_S = 3.0

_TIMED_OUT = re.compile(r"[Tt]imed? ?out")


class Watchdog:
    """Watches one rank.

    Args:
        rank: for messages.
        on_expire: called from a thread of its own with the error of a stuck task; there is no
            way to stop a stuck task from inside, so it should end the process. None: no thread.
        board: where ranks of a stuck run tell each other what they are at; None does without.

    Attributes:
        place: where the rank is in its plan, in words.
    """

    def __init__(
        self,
        rank: int,
        on_expire: Callable[[RunError], None] | None = None,
        board: PositionBoard | None = None,
    ) -> None:
        self.rank = rank
        self.place = "before the first step"
        self._on_expire = on_expire
        self._board = board
        self._posted = False
        self._current: tuple[str, float, float] | None = None
        if on_expire is not None:
            threading.Thread(target=self._watch, daemon=True, name="arachne-watchdog").start()

    @contextmanager
    def task(self, label: str, limit_s: float) -> Iterator[None]:
        """Guards a task.

        Raises:
            RunError: what torch complains of, with the task and the rank.
        """
        self._current = label, time.monotonic(), limit_s
        try:
            yield
        except ArachneError:
            raise
        except RuntimeError as error:  # torch's, among them out of memory and lost peers
            what = f"{label} failed: {error}"
            if _TIMED_OUT.search(str(error)):
                what += self.positions()
            raise RunError(what, where=f"rank {self.rank}") from error
        finally:
            self._current = None

    def position(self) -> str:
        """What this rank is at, in words."""
        current = self._current
        if current is None:
            return f"{self.place}, between two tasks"
        return f"{self.place}, {current[0]} for {time.monotonic() - current[1]:.0f} s"

    def positions(self) -> str:
        """What all ranks are at, once they answered or had time to; empty without a board."""
        board = self._board
        if board is None:
            return ""
        self._post(board)
        board.ask()
        give_up_s = time.monotonic() + _ANSWER_PATIENCE_S
        while not board.complete() and time.monotonic() < give_up_s:
            time.sleep(_LOOK_EVERY_S / 5)
        return f" ({board.read()})"

    def _post(self, board: PositionBoard) -> None:
        self._posted = True
        board.post(self.rank, self.position())

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            if self._board is not None and not self._posted and self._board.asked():
                self._post(self._board)
            current = self._current
            if current is None or self._on_expire is None:
                continue
            label, began_s, limit_s = current
            if time.monotonic() > began_s + limit_s + _GRACE_S:
                what = f"{label} is not done after {limit_s:.0f} s{self.positions()}"
                hint = "a larger timeout_factor, or measured durations in the plan"
                self._on_expire(RunError(what, where=f"rank {self.rank}", hint=hint))
                return
