"""Equal requests at the same time are solved once.

Who solves holds a lease: a row that names it, with the time of its last sign of life. A thread
renews that time while the work goes on. The lease of a process that was killed, of a machine
that lost power or network, and of a process that somebody stopped is free ``LEASE_S`` seconds
after its last sign of life. A holder that comes back later sees that the lease is another's: it
says so and goes on, and what it stores is one more plan of the problem. A lease saves work; that
the database stays whole never depends on it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from sqlalchemy import Connection

from arachne_opt.db import lease_rows
from arachne_opt.db.engine import Database
from arachne_opt.db.lease_rows import Holder
from arachne_opt.db.patience import Patience
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError, StoreError

LOG = logging.getLogger(__name__)

_POLL_S = 0.25


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
        StoreError: the lease cannot be taken because the database is lost.
    """
    if timeout_s < 0:
        raise InputError(f"the time to wait must not be negative, not {timeout_s}")
    if store.database.read_only:
        yield False
        return
    patience = Patience(timeout_s=timeout_s, on_wait=on_wait, should_stop=should_stop)
    lease = _Lease(store.database, hashlib.sha256(f"single flight {key}".encode()).hexdigest())
    if not patience.until(lease.take, _POLL_S):
        yield False
        return
    with lease:
        yield True


class _Lease:
    """A lease of this process; inside the block a thread renews it."""

    def __init__(self, database: Database, key: str) -> None:
        self._database, self._key = database, key
        words = f"process {os.getpid()} on {platform.node()}"
        self._me = Holder(secrets.token_hex(16), words)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> bool:
        """Whether the lease is now held by this process."""
        # Who waits only reads, so that many who wait leave the others room to write.
        if self._database.read(lambda c: lease_rows.is_held(c, self._key)):
            return False
        mine, silent = self._database.write(lambda c: lease_rows.take(c, self._key, self._me))
        if silent:
            span_s = lease_rows.LEASE_S
            LOG.warning("%s was silent for %.0f s: its request is taken over", silent, span_s)
        return mine

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()
        try:
            self._database.write(lambda c: lease_rows.release(c, self._key, self._me.token))
        except StoreError as failure:
            # The work is done and must not be lost; the lease ends by itself.
            span_s = lease_rows.LEASE_S
            LOG.warning("a lease could not be given up, it ends in %.0f s: %s", span_s, failure)

    def _beat(self, connection: Connection) -> bool:
        return lease_rows.beat(connection, self._key, self._me.token)

    def _renew(self) -> None:
        while not self._done.wait(lease_rows.BEAT_S):
            try:
                if not self._database.write(self._beat):
                    LOG.warning(
                        "this process was silent for more than %.0f s: another one has taken its"
                        " request over, and the plans of both are kept",
                        lease_rows.LEASE_S,
                    )
                    return
            except StoreError as failure:
                # Tried again at the next beat: a server that restarts is back by then.
                LOG.info("a lease could not be renewed: %s", failure)
