"""Locks between processes of one machine, as files beside an SQLite database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from arachne_opt.errors import StoreError

_POLL_S = 0.02


@contextmanager
def file_lock(
    database: Path, name: str, timeout_s: float, on_wait: Callable[[], None] | None = None
) -> Iterator[bool]:
    """Holds the lock of a name inside the block; yields False if the time passed first.

    The lock of a process that dies is free at once. ``on_wait`` is called once if it is taken.

    Raises:
        StoreError: the folder of the database cannot be written.
    """
    folder = database.with_name(database.name + ".locks")
    try:
        folder.mkdir(exist_ok=True)
        lock = FileLock(folder / f"{name}.lock")
        held = _acquire(lock, timeout_s, on_wait)
    except OSError as error:
        raise StoreError(f"cannot lock in {folder}: {error}", where=str(database)) from error
    try:
        yield held
    finally:
        if held:
            # While it is held: who waits for this file sees that it is gone and makes a new one.
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def _acquire(lock: FileLock, timeout_s: float, on_wait: Callable[[], None] | None) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_wait is not None:
            on_wait()
    else:
        return True
    try:
        lock.acquire(timeout=timeout_s, poll_interval=_POLL_S)
    except Timeout:
        return False
    return True
