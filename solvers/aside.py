"""Work on a second thread: CP-SAT leaves the interpreter free while it searches."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Aside:
    """One function on its own thread with a flag that asks it to stop.

    The main thread stays free to take signals, to search itself and to ask for a stop.
    """

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self.stop = threading.Event()
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self.stop)
        except BaseException as error:  # handed to the thread that joins
            self._error = error

    def running(self) -> bool:
        """Whether the work goes on."""
        return self._thread.is_alive()

    def wait(self, over: Callable[[], bool]) -> None:
        """Waits for the end; asks to stop as soon as ``over`` says so."""
        while self._thread.is_alive():
            self._thread.join(0.02)
            if over():
                self.stop.set()
        self.finish()

    def finish(self) -> None:
        """Asks to stop, waits, and raises what went wrong."""
        self.stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
