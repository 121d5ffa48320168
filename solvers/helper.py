"""Work in a process of its own, beside that of the main process.

Searches in Python hold the interpreter, so that threads would share one core. The process is a
fresh interpreter that imports nothing but its work: the caller may be a script without a main
guard, a thread, or a process with torch in it, which neither fork nor multiprocessing's spawn is
fit for. It ends with its input, so that it never outlives its parent.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

# The interpreter is isolated and takes its path from its parent: no working folder, no variables.
_BOOT = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from arachne_opt.solvers.helper import serve
serve()
"""


class Answer(NamedTuple):
    """What was asked, and what was found."""

    asked: Any
    found: Any


class Helper:
    """The process as its parent sees it; one that fails to work is left alone.

    Questions and answers travel in the same order.

    Args:
        begin: a function of a module; makes in the process what answers questions.
        given: its arguments.
    """

    def __init__(self, begin: Callable[..., Callable[[Any], Any]], *given: object) -> None:
        self._asked: list[Any] = []
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for the parent, who ends the process.
            start_new_session=True,
        )
        self._works = True
        # A large problem fills the pipe until the new interpreter reads: never wait for that.
        self._outbox: SimpleQueue[object] = SimpleQueue()
        self._outbox.put(list(sys.path))
        self._outbox.put((begin, given))
        self._threads = [threading.Thread(target=f, daemon=True) for f in (self._read, self._write)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def wants(self) -> bool:
        """Whether it has nothing to do."""
        return self._works and not self._asked

    def busy(self) -> bool:
        """Whether it works on something."""
        return self._works and bool(self._asked) and self._answers.empty()

    def ask(self, question: object) -> None:
        """Hands a question over."""
        self._asked.append(question)
        self._outbox.put(question)

    def answers(self) -> list[Answer]:
        """What was found since the last call."""
        out = []
        while True:
            try:
                found = self._answers.get_nowait()
            except Empty:
                break
            out.append(Answer(self._asked.pop(0), found))
        return out

    def close(self) -> None:
        """Ends the process at once and collects it."""
        self._works = False
        self._process.kill()
        self._process.wait()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:  # what was still to be written has no reader any more
                continue

    def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            while (value := self._outbox.get()) is not None:
                pickle.dump(value, self._process.stdin)
                self._process.stdin.flush()
        except OSError:
            self._works = False

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                self._answers.put(pickle.load(self._process.stdout))
        except (EOFError, OSError, pickle.UnpicklingError):
            self._works = False


def start_helpers(
    count: int, begin: Callable[..., Callable[[Any], Any]], *given: object
) -> list[Helper]:
    """So many helpers, none where this interpreter cannot be started a second time.

    Each is given its number, from 0 on, before the other arguments.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return []
    helpers: list[Helper] = []
    try:
        for number in range(count):
            helpers.append(Helper(begin, number, *given))
    except OSError:
        pass  # what has started is enough
    return helpers


def serve() -> None:
    """Answers questions from the standard input until it ends."""
    # Whatever prints must not print into the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    begin, given = pickle.load(sys.stdin.buffer)
    answer = begin(*given)
    try:
        while True:
            pickle.dump(answer(pickle.load(sys.stdin.buffer)), out)
            out.flush()
    except (EOFError, BrokenPipeError):
        # The parent has ended or hung up. Nothing is left to be flushed into a pipe without end.
        os._exit(0)
