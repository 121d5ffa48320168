"""Backups: one SQLite file with everything, of either kind of database, into either kind."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    type_coerce,
)

from arachne_opt.db import migrate
from arachne_opt.db.engine import open_database
from arachne_opt.db.failures import store_errors
from arachne_opt.db.location import Location, locate
from arachne_opt.db.models import LEASES, MEASUREMENTS, METADATA, SCHEMA_HISTORY
from arachne_opt.db.schema import read_schema, require_current
from arachne_opt.errors import InputError, StoreError

_ROWS = 500


def backup(url: str, target: Path) -> int:
    """Writes a whole copy into a new SQLite file; returns its size in bytes.

    Others may go on reading and writing: the copy is the state of one moment. A file of an older
    schema is copied as it is; a server must have the current schema.

    Raises:
        InputError: the target exists or its folder does not.
        StoreError: the database cannot be read, or the target cannot be written.
    """
    source = locate(url)
    if target.exists():
        raise InputError("this file exists", where=str(target), hint="another name")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}", where=str(target))
    with _part(target) as part:
        if source.path is None:
            migrate.upgrade(str(part))
            _copy(source, locate(part))
        else:
            _copy_file(source, part)
        _fold_log(part)
    return target.stat().st_size


def restore(url: str, file: Path) -> int:
    """Fills an empty database from a backup; returns the number of rows.

    A missing SQLite file is made; a server is brought to the current schema. A backup of an older
    schema is upgraded on the way; the file itself stays as it is.

    Raises:
        InputError: the database is not empty.
        StoreError: the backup cannot be read, or the database cannot be written.
    """
    target = locate(url)
    with TemporaryDirectory(prefix="arachne-restore-") as folder:
        copy = locate(Path(folder) / "copy.db")
        assert copy.path is not None
        _copy_file(locate(file), copy.path)
        migrate.upgrade(str(copy.path))
        migrate.upgrade(url)
        return _copy(copy, target)


@contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A file that takes the place of the target when all went well, and vanishes otherwise."""
    with TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        part = Path(folder) / "part.db"
        yield part
        os.replace(part, target)


def _copy_file(source: Location, target: Path) -> None:
    database = open_database(source, read_only=True)
    with store_errors(source):
        raw = database.engine.raw_connection()
        other = sqlite3.connect(target)
        try:
            # The driver's own connection: SQLite copies page by page, changes included.
            raw.driver_connection.backup(other)  # type: ignore[union-attr]  # it is open
        except sqlite3.Error as error:
            raise StoreError(f"the copy failed: {error}", where=source.label) from error
        finally:
            other.close()
            raw.close()
            database.close()


def _fold_log(path: Path) -> None:
    """Leaves one file without a log beside it."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    connection.close()


def _copy(source: Location, target: Location) -> int:
    """Copies all rows into an empty database of the same schema; all or nothing."""
    reader = open_database(source, read_only=True)
    writer = open_database(target)
    try:
        return reader.read(lambda c: writer.write(lambda d: _copy_rows(c, d, source, target)))
    finally:
        reader.close()
        writer.close()


def _copy_rows(
    source: Connection, target: Connection, source_at: Location, target_at: Location
) -> int:
    require_current(read_schema(source), source_at)
    require_current(read_schema(target), target_at)
    total = 0
    # Who is at work on what says nothing about another database.
    for table in (t for t in METADATA.sorted_tables if t is not LEASES):
        if table is SCHEMA_HISTORY:
            target.execute(delete(table))
        elif target.execute(select(func.count()).select_from(table)).scalar_one():
            what = f"the database is not empty: it has rows in {table.name}"
            raise InputError(what, where=target_at.label, hint="another one with --db")
        total += _copy_table(source, target, table)
    if target.dialect.name == "postgresql":
        sequence = f"pg_get_serial_sequence('{MEASUREMENTS.name}', 'id')"
        last = f"(SELECT coalesce(max(id), 0) + 1 FROM {MEASUREMENTS.name})"
        target.exec_driver_sql(f"SELECT setval({sequence}, {last}, false)")
    return total


def _copy_table(source: Connection, target: Connection, table: Table) -> int:
    """Copies a table; JSON as the text that it is, so that not a digit changes."""
    # On PostgreSQL a cast gives the text; SQLite keeps JSON as text, and a cast would spoil it.
    as_text = cast if source.dialect.name == "postgresql" else type_coerce
    columns = [as_text(c, Text).label(c.name) if _is_json(c) else c for c in table.columns]
    values: dict[str, Any] = {c.name: bindparam(c.name, type_=c.type) for c in table.columns}
    for c in filter(_is_json, table.columns):
        text = bindparam(c.name, type_=Text)
        values[c.name] = cast(text, JSON) if target.dialect.name == "postgresql" else text
    add = insert(table).values(values)
    total = 0
    query = select(*columns).order_by(*table.primary_key.columns)
    for rows in source.execute(query).mappings().partitions(_ROWS):
        target.execute(add, [dict(row) for row in rows])
        total += len(rows)
    return total


def _is_json(column: Any) -> bool:  # noqa: ANN401  # Column of any type
    return isinstance(column.type, JSON)
