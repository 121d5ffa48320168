"""Trades of pods in a process of its own, beside those of the main process.

Steps of a batch are short calls of numpy, so that threads would share one core. The process is a
fresh interpreter that imports nothing but this search: the caller may be a script without a main
guard, a thread, or a process with torch in it, which neither fork nor multiprocessing's spawn is
fit for. It ends with its input, so that it never outlives its parent.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_solver import Pod, PodSolver
from arachne_opt.solvers.cascade.pods import Pods, Trade

# The interpreter is isolated and takes its path from its parent: no working folder, no variables.
_BOOT = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from arachne_opt.solvers.cascade.pod_helper import serve
serve()
"""


class Answer(NamedTuple):
    """Trades with what was found for the pods that they want."""

    trades: tuple[Trade, ...]
    found: list[Pod | None]


class Helper:
    """The process as its parent sees it; one that fails to work is left alone.

    Trades and answers travel in the same order.
    """

    def __init__(self, problem: CascadeProblem, target_us: int, seed: int) -> None:
        self._sent: list[tuple[Trade, ...]] = []
        self._answers: SimpleQueue[list[Pod | None]] = SimpleQueue()
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
        self._outbox.put((problem, target_us, seed))
        self._threads = [threading.Thread(target=f, daemon=True) for f in (self._read, self._write)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def wants(self) -> bool:
        """Whether it has nothing to do."""
        return self._works and not self._sent

    def send(self, trades: Sequence[Trade]) -> None:
        """Hands trades over."""
        self._sent.append(tuple(trades))
        self._outbox.put(self._sent[-1])

    def answers(self) -> list[Answer]:
        """What was found since the last call."""
        out = []
        while True:
            try:
                found = self._answers.get_nowait()
            except Empty:
                break
            out.append(Answer(self._sent.pop(0), found))
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


def start_helpers(digest: Digest, target_us: int, seed: int, count: int) -> list[Helper]:
    """So many helpers, none where this interpreter cannot be started a second time."""
    if not sys.executable or getattr(sys, "frozen", False):
        return []
    try:
        return [Helper(digest.problem, target_us, seed + 1 + k) for k in range(count)]
    except OSError:
        return []


def serve() -> None:
    """Answers trades from the standard input until it ends."""
    # Whatever prints must not print into the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    problem, target_us, seed = pickle.load(sys.stdin.buffer)
    digest = Digest(problem)
    pods = Pods(digest, PodSolver(digest, target_us, seed), seed)
    try:
        while True:
            pickle.dump(pods.search(pickle.load(sys.stdin.buffer), _patient), out)
            out.flush()
    except (EOFError, BrokenPipeError):
        # The parent has ended or hung up. Nothing is left to be flushed into a pipe without end.
        os._exit(0)


def _patient(_placed: int) -> bool:
    """Never asks to stop: the parent ends the process."""
    return False
