"""What is in a database, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, not_, select

from arachne_opt.db.models import COST_MODELS, METADATA, PLANS, PROBLEMS
from arachne_opt.db.plan_rows import STALE, best_of_problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Numbers about a database.

    Args:
        rows: by table.
        answers: plans that answer requests; the others are history.
        stale: plans whose prices were replaced since.
        quarantined: plans that are not used.
        size_bytes: of all tables and indexes.
        free_bytes: room inside the file that new rows will take first.
        oldest: time of the first plan, None without plans; ``newest`` likewise.
    """

    rows: dict[str, int]
    answers: int
    stale: int
    quarantined: int
    size_bytes: int
    free_bytes: int
    oldest: str | None
    newest: str | None


def count_all(connection: Connection) -> Stats:
    """The numbers, from one transaction."""
    rows = {
        name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for name, table in sorted(METADATA.tables.items())
    }
    joined = PLANS.join(PROBLEMS).join(COST_MODELS)
    count = select(func.count()).select_from(joined)
    size_bytes, free_bytes = _size(connection)
    first, last = connection.execute(
        select(func.min(PLANS.c.created_at), func.max(PLANS.c.created_at))
    ).one()
    return Stats(
        rows=rows,
        answers=connection.scalar(count.where(PLANS.c.id == best_of_problem())) or 0,
        stale=connection.scalar(count.where(STALE)) or 0,
        quarantined=connection.scalar(count.where(not_(PLANS.c.quarantine.is_(None)))) or 0,
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        oldest=None if first is None else first.isoformat(timespec="seconds"),
        newest=None if last is None else last.isoformat(timespec="seconds"),
    )


def _size(connection: Connection) -> tuple[int, int]:
    if connection.dialect.name == "sqlite":
        names = ("page_size", "page_count", "freelist_count")
        page, count, free = (
            int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()) for name in names
        )
        return page * count, page * free
    query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
    query += " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
    return int(connection.exec_driver_sql(query).scalar() or 0), 0
