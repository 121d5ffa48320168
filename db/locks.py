"""Equal requests at the same time are solved once.

The lock is held by the process itself, not written into a table, so that it needs no lease that
somebody has to renew: the lock of a process that dies is free as soon as its kernel has closed
the file or the connection. A host that is lost without a word is noticed by the server, which
asks every waiting connection for a sign of life and gives it up after ``LOST_AFTER_S``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import text

from arachne_opt.db.failures import store_errors
from arachne_opt.db.file_lock import file_lock
from arachne_opt.db.patience import Patience
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError

_POLL_S = 0.1
# The server asks a silent host after so long, so many times, with such pauses.
_SILENT_S, _ASK_TIMES, _ASK_PAUSE_S = 5, 3, 2
LOST_AFTER_S = _SILENT_S + _ASK_TIMES * _ASK_PAUSE_S

_SETTINGS = (
    ("idle_in_transaction_session_timeout", 0),
    ("tcp_keepalives_idle", _SILENT_S),
    ("tcp_keepalives_interval", _ASK_PAUSE_S),
    ("tcp_keepalives_count", _ASK_TIMES),
    ("tcp_user_timeout", 1000 * LOST_AFTER_S),
)


@contextmanager
def single_flight(
    store: PlanStore,
    key: str,
    timeout_s: float,
    *,
    on_wait: Callable[[float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Iterator[bool]:
    """Lets one process at a time through for a key; yields whether this one is alone.

    Look for the plan inside: who waited finds what the process before it stored. False means
    that the time passed first, that ``should_stop`` said so, or that the store is read-only, which
    locks nobody out: solving as well costs time, but no answer. ``on_wait`` is told the seconds,
    several times a second, while another process is at work on the same key.

    Raises:
        StoreError: the lock cannot be taken because the database or its folder is lost.
    """
    if timeout_s < 0:
        raise InputError(f"the time to wait must not be negative, not {timeout_s}")
    name = hashlib.sha256(f"arachne single flight {key}".encode()).hexdigest()
    path = store.database.location.path
    patience = Patience(timeout_s=timeout_s, on_wait=on_wait, should_stop=should_stop)
    if store.database.read_only:
        yield False
    elif path is None:
        with _server_lock(store, int(name[:15], 16), patience) as alone:
            yield alone
    else:
        with file_lock(path, name[:32], patience) as alone:
            yield alone


@contextmanager
def _server_lock(store: PlanStore, number: int, patience: Patience) -> Iterator[bool]:
    """Holds an advisory lock of PostgreSQL as long as its own transaction is open."""
    location = store.database.location
    # In this isolation an idle transaction keeps no snapshot, so the server can still clean up.
    engine = store.database.engine.execution_options(isolation_level="READ COMMITTED")
    attempt = text("SELECT pg_try_advisory_xact_lock(:number)")
    with store_errors(location):
        connection = engine.connect()
    try:
        with store_errors(location):
            for setting, value in _SETTINGS:
                connection.execute(text(f"SET LOCAL {setting} = {value}"))
            alone = patience.until(
                lambda: bool(connection.scalar(attempt, {"number": number})), _POLL_S
            )
        yield alone
    finally:
        # Ends the transaction, and the lock with it; a lost connection has lost it already.
        connection.close()
