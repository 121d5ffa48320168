"""Rows that exist once per key, whoever writes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, select
from sqlalchemy.dialects import postgresql, sqlite

from arachne_opt.db.ids import new_id


def ensure_row(
    connection: Connection, table: Table, key: Mapping[str, Any], values: Mapping[str, Any]
) -> str:
    """The id of the row with this unique key; ``values`` fill a new row only."""
    match = and_(*(table.c[name] == value for name, value in key.items()))
    find = select(table.c.id).where(match)
    found = connection.scalar(find)
    if found is None:
        dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
        # Two hosts may both have found nothing: the second insert does nothing.
        add = dialect.insert(table).values(id=new_id(), **key, **values)
        connection.execute(add.on_conflict_do_nothing(index_elements=list(key)))
        found = connection.execute(find).scalar_one()
    return str(found)
