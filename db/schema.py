"""Which schema a database has, without loading the migrations."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, select, text

from arachne_opt import __version__
from arachne_opt.db.location import Location
from arachne_opt.db.models import METADATA, SCHEMA_HISTORY
from arachne_opt.errors import StoreError

# The newest migration in migrations/versions; a test compares the two.
HEAD = "0003"

VERSION_TABLE = "alembic_version"
_OURS = re.compile(r"\d{4}")


class State(enum.Enum):
    """How the schema of a database relates to the one of this release."""

    EMPTY = enum.auto()
    CURRENT = enum.auto()
    OLDER = enum.auto()
    NEWER = enum.auto()
    FOREIGN = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The schema of a database.

    Args:
        revision: its newest migration, None where there is none.
        app_version: the release of arachne-opt that made it, where that is known.
        tables: tables that are there, for a database that is not ours.
    """

    state: State
    revision: str | None = None
    app_version: str | None = None
    tables: tuple[str, ...] = ()


def read_schema(connection: Connection) -> Schema:
    """The schema of a database."""
    tables = tuple(sorted(inspect(connection).get_table_names()))
    if VERSION_TABLE not in tables:
        return Schema(state=State.FOREIGN if tables else State.EMPTY, tables=tables)
    revision = connection.scalar(text(f"SELECT max(version_num) FROM {VERSION_TABLE}"))
    if revision is None:
        others = tuple(t for t in tables if t != VERSION_TABLE)
        return Schema(state=State.FOREIGN if others else State.EMPTY, tables=others)
    if not _OURS.fullmatch(revision) or not {"plans", "problems"} <= set(tables):
        return Schema(state=State.FOREIGN, revision=revision, tables=tables)
    changed = State.NEWER if revision > HEAD else State.OLDER
    state = State.CURRENT if revision == HEAD else changed
    maker = None
    if SCHEMA_HISTORY.name in tables:
        history = SCHEMA_HISTORY.c
        query = select(history.app_version).where(history.revision == revision)
        maker = connection.scalar(query)
    return Schema(state=state, revision=revision, app_version=maker)


def require_current(schema: Schema, location: Location) -> None:
    """Refuses every schema but the one of this release.

    Raises:
        StoreError: with the command that helps.
    """
    if schema.state is State.CURRENT:
        return
    refuse_unknown(schema, location)
    if schema.state is State.EMPTY:
        what = "the database has no tables yet"
    else:
        what = f"the database has schema {schema.revision}, this release needs {HEAD}"
    raise StoreError(what, where=location.label, hint=location.upgrade_command)


def refuse_unknown(schema: Schema, location: Location) -> None:
    """Refuses what an upgrade must not touch.

    Raises:
        StoreError: the schema is of a later release, or the database is not ours.
    """
    if schema.state is State.NEWER:
        maker = schema.app_version or "a later release"
        what = f"the database has schema {schema.revision}, made by arachne-opt {maker}; "
        what += f"this is arachne-opt {__version__}, which knows schemas up to {HEAD}"
        hint = f"pip install 'arachne-opt>={maker}'" if schema.app_version else "a later release"
        raise StoreError(what, where=location.label, hint=hint)
    if schema.state is State.FOREIGN:
        ours = set(METADATA.tables) | {VERSION_TABLE}
        others = [t for t in schema.tables if t not in ours] or list(schema.tables)
        named = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        what = f"this database belongs to another program: it has the tables {named}"
        hint = "another database with --db or ARACHNE_DB"
        raise StoreError(what, where=location.label, hint=hint)
