"""Transactions that lose nothing, on SQLite and on PostgreSQL."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from arachne_opt.db.failures import should_retry, store_errors
from arachne_opt.db.location import Location
from arachne_opt.db.network_disks import network_disk
from arachne_opt.errors import InputError, MissingDependencyError, StoreError

T = TypeVar("T")

WAIT_S = 30.0  # for other writers, before giving up
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.2
_CONNECT_TIMEOUT_S = 10
# The server ends a writing transaction whose client says nothing for so long.
_SILENT_S = 15
_END_SILENT = f"SET LOCAL idle_in_transaction_session_timeout = {1000 * _SILENT_S}"
_MAGIC = b"SQLite format 3\0"  # https://www.sqlite.org/fileformat.html


class Database:
    """An open database. Work is given as a function, because a transaction may have to be redone.

    Reading transactions see one state of the database. A writing transaction is whole or absent,
    and none overwrites what another one stored between its own reading and writing.
    """

    def __init__(self, location: Location, engine: Engine, *, read_only: bool) -> None:
        self.location = location
        self.read_only = read_only
        self._engine = engine
        self._process = os.getpid()

    @property
    def engine(self) -> Engine:
        """The engine, for this process: after a fork it must not share a socket with the parent."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self._engine.dispose(close=False)
        return self._engine

    def read(self, work: Callable[[Connection], T]) -> T:
        """The answer of ``work``, from one reading transaction."""
        # Not committed: there is nothing to keep, and on a damaged file a commit would fail.
        return self._transact(self.engine.execution_options(postgresql_readonly=True).connect, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """The answer of ``work``, from one writing transaction; ``work`` may be called again.

        Raises:
            StoreError: the database is read-only, full, locked or lost.
        """
        if self.read_only:
            what = "the database was opened for reading only"
            raise StoreError(what, where=self.location.label)
        return self._transact(self.engine.execution_options(arachne_write=True).begin, work)

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    def _transact(
        self,
        start: Callable[[], AbstractContextManager[Connection]],
        work: Callable[[Connection], T],
    ) -> T:
        deadline = time.monotonic() + WAIT_S
        pause_s = _FIRST_PAUSE_S
        with store_errors(self.location):
            while True:
                try:
                    with start() as connection:
                        return work(connection)
                except DBAPIError as error:
                    if not should_retry(error) or time.monotonic() > deadline:
                        raise
                # Jitter, so that two transactions that met once do not meet for ever.
                time.sleep(pause_s * (0.5 + random.random()))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def open_database(location: Location, *, read_only: bool = False, create: bool = False) -> Database:
    """An open database; ``create`` makes the file of an SQLite database where it is missing.

    Raises:
        StoreError: it cannot be opened in this way; PostgreSQL is asked at the first transaction.
        MissingDependencyError: the PostgreSQL driver is not installed.
    """
    if location.path is None:
        engine = _postgres_engine(location)
    else:
        mode = _read_mode(location.path) if read_only else "mode=rwc" if create else "mode=rw"
        _refuse_unusable(location.path, read_only=read_only, create=create)
        engine = _sqlite_engine(location.path, mode)
    return Database(location, engine, read_only=read_only)


def _to_json(value: object) -> str:
    """Compact JSON in the order that was given; NaN and infinity are no JSON."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a value cannot be stored as JSON: {error}") from error


def _sqlite_engine(path: Path, mode: str) -> Engine:
    def connect() -> sqlite3.Connection:
        uri = f"file:{quote(str(path))}?{mode}"
        # isolation_level=None: the driver begins nothing, begin() below does.
        return sqlite3.connect(uri, uri=True, timeout=WAIT_S, isolation_level=None)

    # Opening a file takes a fraction of a millisecond; a pool would carry connections over fork.
    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=NullPool,
        hide_parameters=True,
        json_serializer=_to_json,
    )

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON").close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer that only reads at first must already keep other writers out.
        write = connection.get_execution_options().get("arachne_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _read_mode(path: Path) -> str:
    """How to open a file for reading.

    In write-ahead mode even a reader makes files beside the database. Where it may not, and no
    writer is at work, SQLite must be told that the file will not change.
    """
    log = path.with_name(path.name + "-wal")
    frozen = not os.access(path.parent, os.W_OK) and not log.exists()
    return "mode=ro&immutable=1" if frozen else "mode=ro"


def _refuse_unusable(path: Path, *, read_only: bool, create: bool) -> None:
    """Names what SQLite would only call "unable to open database file"."""
    hint = "another database with --db or ARACHNE_DB"
    folder = path.parent
    if not folder.exists():
        raise StoreError(f"the folder {folder} does not exist", where=str(path), hint="making it")
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder", where=str(path), hint=hint)
    if path.is_dir():
        raise StoreError("this is a folder, not a database file", where=str(path), hint=hint)
    if not path.exists() and not create:
        raise StoreError("there is no database", where=str(path), hint=hint)
    if path.exists() and not os.access(path, os.R_OK):
        raise StoreError("no permission to read the database", where=str(path), hint=hint)
    # SQLite takes some short files for empty databases, and would write over them.
    if path.exists() and not _looks_like_sqlite(path):
        raise StoreError("this file is no database", where=str(path), hint=hint)
    if read_only:
        return
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError("the database is read-only", where=str(path), hint=hint)
    kind = network_disk(path)
    if kind is not None:
        what = f"the file is on a network disk ({kind}), where SQLite can lose what several"
        what += " programs write"
        hint = "a file on a local disk, or a PostgreSQL server, with --db or ARACHNE_DB"
        raise StoreError(what, where=str(path), hint=hint)
    if not os.access(folder, os.W_OK):
        what = f"the folder {folder} is read-only, and SQLite writes files beside the database"
        raise StoreError(what, where=str(path), hint=hint)


def _looks_like_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) in (_MAGIC, b"")


def _postgres_engine(location: Location) -> Engine:
    if importlib.util.find_spec("psycopg") is None:
        what = "the driver for PostgreSQL is not installed"
        raise MissingDependencyError(what, hint="pip install 'arachne-opt[postgres]'")
    assert location.url is not None
    engine = create_engine(
        location.url,
        # First updater wins, the other is told to do its transaction again: no lost update.
        isolation_level="REPEATABLE READ",
        pool_pre_ping=True,
        pool_size=2,
        hide_parameters=True,
        json_serializer=_to_json,
        connect_args={"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "arachne"},
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A host that is lost in the middle of a transaction must not keep its rows locked.
        if connection.get_execution_options().get("arachne_write"):
            connection.exec_driver_sql(_END_SILENT)

    return engine
