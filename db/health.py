"""Looks for drift and damage in a database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import JSON, Connection, case, func, inspect, select, true
from sqlalchemy.exc import DatabaseError

from arachne_opt.db.models import METADATA, PLAN_PAYLOADS, PLANS
from arachne_opt.db.schema import read_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a check found; empty tuples are good.

    Args:
        drift: differences between the tables and what this release expects.
        damage: pages, rows or payloads that are broken.
        dangling: references to rows that are not there.
    """

    revision: str | None
    drift: tuple[str, ...]
    damage: tuple[str, ...]
    dangling: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not (self.drift or self.damage or self.dangling)


def examine(connection: Connection) -> Health:
    """What is wrong with a database of the current schema."""
    revision = read_schema(connection).revision
    settings = {"compare_type": True, "target_metadata": METADATA}
    context = MigrationContext.configure(connection, opts=settings)
    drift = tuple(_words(step) for step in compare_metadata(context, METADATA))
    sqlite = connection.dialect.name == "sqlite"
    if sqlite and (pages := tuple(_broken_pages(connection))):
        # Rows on broken pages cannot be read one by one.
        return Health(revision=revision, drift=drift, damage=pages, dangling=())
    dangling = _dangling(connection) if sqlite else _unchecked(connection)
    damage = tuple(_broken_payloads(connection, sqlite=sqlite))
    return Health(revision=revision, drift=drift, damage=damage, dangling=tuple(dangling))


def _words(step: object) -> str:
    """One difference as alembic reports it, for people: ``add_table runs``."""
    while isinstance(step, list):
        step = step[0]
    if not isinstance(step, tuple):
        return str(step)
    parts = [getattr(part, "name", part) for part in step if part is not None]
    return " ".join(str(part) for part in parts if isinstance(part, str))


def _broken_pages(connection: Connection) -> Iterator[str]:
    try:
        lines = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
    except DatabaseError as error:
        lines = [str(error.orig)]  # too damaged even for the check
    yield from (line for line in lines if line != "ok")


def _broken_payloads(connection: Connection, *, sqlite: bool) -> Iterator[str]:
    kind = func.json_type if sqlite else func.json_typeof
    for table in METADATA.tables.values():
        key = table.primary_key.columns.values()[0]
        for column in (c for c in table.columns if isinstance(c.type, JSON)):
            other = kind(column).not_in(("object", "null"))
            # Asked first: json_type() of what is no JSON is an error.
            wrong = case((func.json_valid(column) == 0, true()), else_=other) if sqlite else other
            query = select(key).where(column.is_not(None), wrong).order_by(key)
            for row_id in connection.scalars(query):
                yield f"{table.name} {row_id}: {column.name} is no JSON object"
    bare = select(PLANS.c.id).select_from(PLANS.outerjoin(PLAN_PAYLOADS))
    for plan_id in connection.scalars(bare.where(PLAN_PAYLOADS.c.plan_id.is_(None))):
        yield f"plans {plan_id}: there is no payload"


def _dangling(connection: Connection) -> Iterator[str]:
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"{table} row {row} refers to a row of {parent} that is not there"


def _unchecked(connection: Connection) -> Iterator[str]:
    """PostgreSQL enforces references and JSON itself, unless somebody switched that off."""
    names = inspect(connection).get_table_names()
    query = "SELECT conname, conrelid::regclass::text FROM pg_constraint WHERE NOT convalidated"
    for constraint, table in connection.exec_driver_sql(query):
        if table.split(".")[-1] in names:
            yield f"{table}: the constraint {constraint} was never validated"
