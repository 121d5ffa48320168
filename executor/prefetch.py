"""Reads files ahead of the tasks that need them, on threads of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from arachne_opt.errors import InputError

Wanted = TypeVar("Wanted")

_THREADS = 2


class Prefetch(Generic[Wanted]):
    """What was asked for, read once and kept until it is taken.

    Args:
        read: reads one request; an InputError means that its file cannot be used.
    """

    def __init__(self, read: Callable[[Wanted], Any]) -> None:
        self._read = read
        self._pool: ThreadPoolExecutor | None = None
        self._reading: dict[Wanted, Future[Any]] = {}

    def collect(self, wanted: Sequence[Wanted], ahead: Sequence[Wanted]) -> dict[Wanted, str]:
        """Waits until ``wanted`` is read, starts on ``ahead``; gives what failed and why.

        What was asked for before and is in neither is forgotten.
        """
        kept = {*wanted, *ahead}
        for request in [r for r in self._reading if r not in kept]:
            self._reading.pop(request).cancel()
        self._start(wanted)
        failures = {}
        for request in wanted:
            try:
                self._reading[request].result()
            except InputError as error:
                failures[request] = error.what
        self._start(ahead)
        return failures

    def take(self, request: Wanted) -> Any:  # noqa: ANN401 - whatever was read
        """What was read; the next iteration that wants it reads it again."""
        return self._reading.pop(request).result()

    def _start(self, requests: Sequence[Wanted]) -> None:
        for request in requests:
            if request not in self._reading:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(_THREADS, "arachne-read")
                self._reading[request] = self._pool.submit(self._read, request)
