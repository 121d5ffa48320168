"""Locks between processes of one machine, as files beside an SQLite database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from arachne_opt.db.patience import Patience
from arachne_opt.errors import StoreError

_POLL_S = 0.02


@contextmanager
def file_lock(database: Path, name: str, patience: Patience) -> Iterator[bool]:
    """Holds the lock of a name inside the block; yields False if the patience ended first.

    The lock of a process that dies is free at once.

    Raises:
        StoreError: the folder of the database cannot be written.
    """
    folder = database.with_name(database.name + ".locks")
    try:
        folder.mkdir(exist_ok=True)
        lock = FileLock(folder / f"{name}.lock")
        held = patience.until(lambda: _acquired(lock), _POLL_S)
    except OSError as error:
        raise StoreError(f"cannot lock in {folder}: {error}", where=str(database)) from error
    try:
        yield held
    finally:
        if held:
            # While it is held: who waits for this file sees that it is gone and makes a new one.
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


def _acquired(lock: FileLock) -> bool:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    return True
