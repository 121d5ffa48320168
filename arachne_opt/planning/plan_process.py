"""The background process of ``PlanAhead`` as its parent sees it: messages, restarts, the end."""

from __future__ import annotations

import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import arachne_opt

Message = dict[str, Any]

_MODULE = "arachne_opt.planning.plan_worker"
_MOST_STARTS = 4
_STOP_PATIENCE_S = 5.0

_log = logging.getLogger(__name__)


class PlanProcess:
    """Runs the worker as a process of its own and starts it again when it dies.

    It is no fork: it shares no memory, device or main module with its parent. Sending never
    blocks: a thread writes, so that a hanging worker holds up nobody.

    Args:
        start: first message to every new process.
        on_message: called for each message, from a thread.
        on_restart: called when a new process takes the place of a dead one, from a thread.
        on_end: called when there will be no process any more, from a thread.
    """

    def __init__(
        self,
        start: Message,
        on_message: Callable[[Message], None],
        on_restart: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._start_message = start
        self._on_message = on_message
        self._on_restart = on_restart
        self._on_end = on_end
        self._lock = threading.Lock()
        self._closing = False
        self._starts = 0
        self._outbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._spawn()

    @property
    def process_id(self) -> int | None:
        """Of the process that runs now, None where none does."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def send(self, message: Message) -> None:
        """Hands a message to the process; it is lost where there is none."""
        self._outbox.put(json.dumps(message))

    def close(self) -> None:
        """Ends the process: asks, waits a little, then kills."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            process = self._process
        self.send({"op": "stop"})
        self._outbox.put(None)
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_PATIENCE_S)
        if process.poll() is None:
            process.kill()
        process.wait()
        self._reader.join(_STOP_PATIENCE_S)

    def _spawn(self) -> None:
        """Starts a process with a thread that reads from it and one that writes to it."""
        self._starts += 1
        self._outbox = queue.SimpleQueue()
        # Its own session: Ctrl-C reaches the parent alone, which then ends it in order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=_environment(),
            start_new_session=True,
        )
        self.send(self._start_message)
        pair = self._process, self._outbox
        threading.Thread(target=_write, args=pair, name="arachne-plan-out", daemon=True).start()
        self._reader = threading.Thread(
            target=self._read, args=pair, name="arachne-plan-in", daemon=True
        )
        self._reader.start()

    def _read(self, process: subprocess.Popen[str], outbox: queue.SimpleQueue[str | None]) -> None:
        """Passes messages on until the process ends, then starts another one if that is due."""
        assert process.stdout is not None  # asked for with PIPE
        for line in process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                break  # the last words of a killed process are cut
            self._on_message(message)
        process.stdout.close()
        code = process.wait()
        outbox.put(None)
        with self._lock:
            if self._closing:
                return
            again = self._starts < _MOST_STARTS
            if again:
                self._spawn()
        if again:
            # Once is enough: the later times tell nothing new.
            level = logging.WARNING if self._starts == 2 else logging.INFO
            _log.log(level, "the planning process ended (%s); it is started again", _reason(code))
            self._on_restart()
        else:
            _log.warning("the planning process ended %d times; list schedules serve", self._starts)
            self._on_end()


def _write(process: subprocess.Popen[str], outbox: queue.SimpleQueue[str | None]) -> None:
    """Writes messages until there are none to come or nobody reads them."""
    assert process.stdin is not None  # asked for with PIPE
    with suppress(OSError, ValueError):
        while (text := outbox.get()) is not None:
            process.stdin.write(text + "\n")
            process.stdin.flush()
    with suppress(OSError, ValueError):
        process.stdin.close()


def _reason(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _environment() -> dict[str, str]:
    """The parent's environment, with the package within reach and no CUDA device."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    root = str(Path(arachne_opt.__file__).resolve().parent.parent)
    if "site-packages" not in root:
        paths = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment
