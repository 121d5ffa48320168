"""Learned policies as rows, on one connection."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection, select

from arachne_opt.db.models import POLICIES
from arachne_opt.db.upsert import ensure_row
from arachne_opt.records import PolicyRecord


def keep_policy(connection: Connection, record: PolicyRecord) -> str:
    """The id of the policy; equal weights are kept once."""
    key = {"name": record.name, "version": record.version}
    values = {
        "metrics": dict(record.metrics),
        "artifact": record.artifact,
        "created_at": datetime.now(UTC),
    }
    return ensure_row(connection, POLICIES, key, values)


def policy_records(connection: Connection, name: str) -> tuple[PolicyRecord, ...]:
    """All policies of a name, the newest first."""
    query = select(POLICIES).where(POLICIES.c.name == name)
    rows = connection.execute(query.order_by(POLICIES.c.created_at.desc(), POLICIES.c.id.desc()))
    return tuple(
        PolicyRecord(
            name=row.name,
            version=row.version,
            metrics=row.metrics,
            artifact=bytes(row.artifact or b""),
            id=row.id,
            created_at=row.created_at.isoformat(),
        )
        for row in rows
    )
