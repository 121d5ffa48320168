"""Runs migrations on the connection that arachne_opt.db.migrate gives."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo
from sqlalchemy import Connection, delete, insert

from arachne_opt import __version__
from arachne_opt.db.engine import WAIT_S
from arachne_opt.db.models import METADATA, SCHEMA_HISTORY
from arachne_opt.errors import StoreError

# One number for all arachne databases of a server, from "arachne" in ASCII.
UPGRADE_LOCK = 0x61726163686E65


def note_step(
    ctx: MigrationContext,
    step: MigrationInfo,
    heads: Collection[Any],
    run_args: Mapping[str, Any],
) -> None:
    """Writes which release made the step into the history of the schema."""
    connection = ctx.connection
    assert connection is not None
    if not step.is_upgrade:
        return  # undoing the first step takes the history away
    revision = step.up_revision_id
    # A step that was undone and is done again has an old line.
    connection.execute(delete(SCHEMA_HISTORY).where(SCHEMA_HISTORY.c.revision == revision))
    row = {"revision": revision, "app_version": __version__, "applied_at": datetime.now(UTC)}
    connection.execute(insert(SCHEMA_HISTORY).values(row))


def run(connection: Connection) -> None:
    """Runs all steps in one transaction that keeps other upgrades out."""
    context.configure(
        connection=connection,
        target_metadata=METADATA,
        transactional_ddl=True,
        render_as_batch=True,
        on_version_apply=note_step,
    )
    with context.begin_transaction():
        # Inside the transaction: a lock that is taken before it starts another one, which alembic
        # then never commits. On SQLite the transaction itself is the lock (BEGIN IMMEDIATE).
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(WAIT_S * 1000)}")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK})")
        context.run_migrations()
        if connection.dialect.name == "sqlite":
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
            if broken is not None:
                raise StoreError(f"the upgrade would break a reference: {tuple(broken)}")


run(context.config.attributes["connection"])
