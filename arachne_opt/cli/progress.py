"""Talk while a command works: progress on a terminal's stderr, and Ctrl-C that keeps the best."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import click

from arachne_opt.solvers.base import Progress
from arachne_opt.units import format_seconds

Value = TypeVar("Value")

_POLL_S = 0.05
_REDRAW_S = 0.1


class ProgressLine:
    """One line on stderr that is drawn over; silent where stderr is no terminal."""

    def __init__(self) -> None:
        self._active = sys.stderr.isatty()
        self._drawn_s = 0.0
        self._width = 0

    def show(self, text: str, *, force: bool = False) -> None:
        """Draws the text, at most ten times a second."""
        now_s = time.monotonic()
        if not self._active or (now_s - self._drawn_s < _REDRAW_S and not force):
            return
        self._drawn_s = now_s
        columns = shutil.get_terminal_size().columns
        text = text[: columns - 1]
        click.echo("\r" + text.ljust(self._width), nl=False, err=True)
        self._width = len(text)

    def clear(self) -> None:
        """Wipes the line before something else is printed."""
        if self._active and self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
            self._width = 0


def search_text(progress: Progress, head: str) -> str:
    """An improvement as one line."""
    bound = format_seconds(progress.bound_us)
    if progress.objective_us is None:
        return f"{head}  bound {bound}  {progress.elapsed_s:.1f} s"
    objective = format_seconds(progress.objective_us)
    gap = ""
    if progress.bound_us > 0:
        gap = f"  gap {100 * (progress.objective_us / progress.bound_us - 1):.1f} %"
    return f"{head}  {objective}  bound {bound}{gap}  {progress.elapsed_s:.1f} s {progress.source}"


class Interrupts:
    """Whether Ctrl-C was pressed: the first asks the work to stop, the second ends it at once."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def pressed(self) -> bool:
        """True once the user asked to stop."""
        return self._event.is_set()

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()

    def run(self, work: Callable[[], Value]) -> Value:
        """Runs blocking work in a thread, so that the signal reaches Python while a solver runs."""
        box: list[Value] = []
        errors: list[BaseException] = []

        def target() -> None:
            try:
                box.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=target, name="arachne-solve", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
        if errors:
            raise errors[0]
        return box[0]


@contextmanager
def catch_interrupts() -> Iterator[Interrupts]:
    """Turns Ctrl-C and SIGTERM into a flag while the block runs."""
    interrupts = Interrupts()
    before = {s: signal.signal(s, interrupts.handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
