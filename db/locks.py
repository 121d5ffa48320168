"""Equal requests at the same time are solved once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from arachne_opt.db.failures import store_errors
from arachne_opt.db.file_lock import file_lock
from arachne_opt.db.location import Location
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError

_LOCK_NOT_AVAILABLE = "55P03"


@contextmanager
def single_flight(
    store: PlanStore,
    key: str,
    timeout_s: float,
    *,
    on_wait: Callable[[], None] | None = None,
) -> Iterator[bool]:
    """Lets one process at a time through for a key; yields whether this one is alone.

    Look for the plan inside: who waited finds what the process before it stored. False means
    that the time passed first, or that the store is read-only, which locks nobody out: solving
    as well costs time, but no answer. The lock of a process that dies is free at once.
    ``on_wait`` is called once if another process is at work on the same key.

    Raises:
        StoreError: the lock cannot be taken because the database or its folder is lost.
    """
    if timeout_s < 0:
        raise InputError(f"the time to wait must not be negative, not {timeout_s}")
    name = hashlib.sha256(f"arachne single flight {key}".encode()).hexdigest()
    path = store.database.location.path
    if store.database.read_only:
        yield False
    elif path is None:
        with _server_lock(store, int(name[:15], 16), timeout_s, on_wait) as alone:
            yield alone
    else:
        with file_lock(path, name[:32], timeout_s, on_wait) as alone:
            yield alone


@contextmanager
def _server_lock(
    store: PlanStore, number: int, timeout_s: float, on_wait: Callable[[], None] | None
) -> Iterator[bool]:
    """Holds an advisory lock of PostgreSQL as long as its own transaction is open."""
    location = store.database.location
    # In this isolation an idle transaction keeps no snapshot, so the server can still clean up.
    engine = store.database.engine.execution_options(isolation_level="READ COMMITTED")
    with store_errors(location):
        connection = engine.connect()
    try:
        with store_errors(location):
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            query = text("SELECT pg_try_advisory_xact_lock(:number)")
            alone = bool(connection.scalar(query, {"number": number}))
        if not alone and on_wait is not None:
            on_wait()
        if not alone:
            alone = _waited(connection, location, number, timeout_s)
        yield alone
    finally:
        # Ends the transaction, and the lock with it; a lost connection has lost it already.
        connection.close()


def _waited(connection: Connection, location: Location, number: int, timeout_s: float) -> bool:
    # 0 would mean to wait for ever.
    limit_ms = max(1, round(timeout_s * 1000))
    with store_errors(location):
        connection.execute(text(f"SET LOCAL lock_timeout = {limit_ms}"))
        try:
            query = text("SELECT pg_advisory_xact_lock(:number)")
            connection.execute(query, {"number": number})
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            return False
    return True
