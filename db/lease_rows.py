"""Leases as rows: who is at work on a key, and when it last said so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from arachne_opt.db.models import LEASES

# A holder says every so often that it lives; after so long without a word its lease is free.
BEAT_S = 2.5
LEASE_S = 10.0

_L = LEASES.c


class Holder(NamedTuple):
    """Who holds a lease: a random token that nobody else has, and words for people."""

    token: str
    words: str


def is_held(connection: Connection, key: str) -> bool:
    """Whether somebody who lives holds the key."""
    row = _row(connection, key)
    return row is not None and not _is_silent(row, shared_now(connection))


def take(connection: Connection, key: str, holder: Holder) -> tuple[bool, str]:
    """Takes a key that is free or whose holder is silent.

    Returns whether it is now the holder's, and the words of the silent one, empty for none.
    """
    row, now = _row(connection, key), shared_now(connection)
    if row is not None and not _is_silent(row, now):
        return False, ""
    mine = {"token": holder.token, "holder": holder.words, "beat_at": now, "created_at": now}
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    # Where two find the key free, the isolation of the transaction lets the second try again.
    add = dialect.insert(LEASES).values(key=key, **mine)
    connection.execute(add.on_conflict_do_update(index_elements=[_L.key], set_=mine))
    return True, "" if row is None else str(row.holder)


def beat(connection: Connection, key: str, token: str) -> bool:
    """Says that a holder lives; False where the key is no longer its own."""
    mine = (_L.key == key) & (_L.token == token)
    done = connection.execute(update(LEASES).where(mine).values(beat_at=shared_now(connection)))
    return done.rowcount == 1


def release(connection: Connection, key: str, token: str) -> bool:
    """Gives a key up; False where it is no longer the holder's own, and stays with who has it."""
    mine = (_L.key == key) & (_L.token == token)
    return connection.execute(delete(LEASES).where(mine)).rowcount == 1


def _row(connection: Connection, key: str) -> Row[Any, Any] | None:
    query = select(_L.holder, _L.beat_at).where(_L.key == key)
    return connection.execute(query).one_or_none()


def _is_silent(row: Row[Any, Any], now: datetime) -> bool:
    """Without a recent sign of life; one of the future is older than a clock that was put back."""
    return bool(abs(now - row.beat_at) > timedelta(seconds=LEASE_S))


def shared_now(connection: Connection) -> datetime:
    """The time of the one clock that all holders share: the server's, or this machine's."""
    if connection.dialect.name != "postgresql":
        return datetime.now(UTC)
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now
