"""Brings a database to the current schema and checks that it is sound."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import event

from arachne_opt.db import feature_rows
from arachne_opt.db.engine import WAIT_S, Database, open_database
from arachne_opt.db.failures import store_errors
from arachne_opt.db.file_lock import file_lock
from arachne_opt.db.health import Health, examine
from arachne_opt.db.location import Location, locate
from arachne_opt.db.patience import Patience
from arachne_opt.db.schema import HEAD, State, read_schema, refuse_unknown, require_current
from arachne_opt.errors import StoreError

MIGRATIONS = Path(__file__).resolve().parent / "migrations"


def head() -> str:
    """The newest schema that this release knows."""
    return HEAD


def current(url: str) -> str | None:
    """The schema of a database, None where it has no tables yet.

    Raises:
        StoreError: it cannot be reached, or it is not ours.
    """
    location = locate(url)
    with _opened(location, read_only=True) as database:
        schema = database.read(read_schema)
    if schema.state is State.FOREIGN:
        refuse_unknown(schema, location)
    return schema.revision


def upgrade(url: str) -> str:
    """Brings a database to the current schema, which is returned; an SQLite file may be missing.

    Several upgrades at a time wait for each other; the first does the work.

    Raises:
        StoreError: it cannot be written, is of a later release, or is not ours.
    """
    location = locate(url)
    with _opened(location, create=True) as database, _only_upgrade(database):
        schema = database.read(read_schema)
        refuse_unknown(schema, location)
        if schema.state is not State.CURRENT:
            _run_migrations(database)
        feature_rows.fill(database)
    return HEAD


def check(url: str) -> Health:
    """Looks for drift of the schema, damage and dangling references.

    Raises:
        StoreError: the database cannot be read, or its schema is not the current one.
    """
    location = locate(url)
    with _opened(location, read_only=True) as database:
        require_current(database.read(read_schema), location)
        return database.read(examine)


def config() -> Config:
    """Alembic's configuration, without a file."""
    settings = Config()
    # The parser of the configuration takes % for the start of a reference.
    settings.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    return settings


def draft(message: str, folder: Path) -> Path:
    """Writes the next migration into ``folder`` from the difference between models and HEAD.

    For developers: read what was written, complete it, and raise ``schema.HEAD``.
    """
    number = f"{int(HEAD) + 1:04d}"
    settings = config()
    settings.set_main_option("file_template", "v%%(rev)s_%%(slug)s")
    versions = str(MIGRATIONS / "versions").replace("%", "%%")
    places = f"{versions}:{str(folder).replace('%', '%%')}"
    settings.set_main_option("version_locations", places)
    with TemporaryDirectory() as scratch:
        location = locate(Path(scratch) / "scratch.db")
        upgrade(str(location.path))
        with _opened(location) as database, database.engine.connect() as connection:
            settings.attributes["connection"] = connection
            script = command.revision(
                settings,
                message,
                autogenerate=True,
                rev_id=number,
                version_path=str(folder),
            )
    assert script is not None
    assert not isinstance(script, list)
    return Path(script.path)


@contextmanager
def _opened(
    location: Location, *, read_only: bool = False, create: bool = False
) -> Iterator[Database]:
    database = open_database(location, read_only=read_only, create=create)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _only_upgrade(database: Database) -> Iterator[None]:
    """Keeps other upgrades of an SQLite file out; PostgreSQL locks inside the transaction.

    Switching a file to write-ahead mode does not wait for other connections, but fails.
    """
    path = database.location.path
    if path is None:
        yield
        return
    with file_lock(path, "upgrade", Patience(timeout_s=WAIT_S)) as alone:
        if not alone:
            what = f"another upgrade has not ended in {WAIT_S:.0f} s"
            raise StoreError(what, where=database.location.label)
        yield


def _run_migrations(database: Database) -> None:
    settings = config()
    engine = database.engine.execution_options(arachne_write=True)
    if database.location.path is None:
        # A snapshot from before the lock would hide what the upgrade before this one did.
        engine = engine.execution_options(isolation_level="READ COMMITTED")
    else:
        _prepare_sqlite(database)
    with store_errors(database.location), engine.connect() as connection:
        settings.attributes["connection"] = connection
        command.upgrade(settings, "head")


def _prepare_sqlite(database: Database) -> None:
    @event.listens_for(database.engine, "connect")
    def configure(connection: object, _record: object) -> None:
        # Changing a table means copying it, which must not delete what refers to it; the
        # migration ends with a check of all references.
        connection.execute("PRAGMA foreign_keys = OFF").close()  # type: ignore[attr-defined]  # DBAPI

    with store_errors(database.location):
        raw = database.engine.raw_connection()
        try:
            cursor = raw.cursor()
            mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            cursor.close()
        finally:
            raw.close()
    if mode != "wal":
        what = f"write-ahead mode is not possible here, the journal stays in mode {mode!r}"
        hint = "a folder on a local disk"
        raise StoreError(what, where=database.location.label, hint=hint)


def known_revisions() -> tuple[str, ...]:
    """All schemas of this release, the oldest first."""
    scripts = ScriptDirectory.from_config(config()).walk_revisions()
    return tuple(sorted(script.revision for script in scripts))
