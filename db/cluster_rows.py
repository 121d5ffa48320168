"""Clusters that plans were made for, on one connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, distinct, func, select

from arachne_opt.db.ids import id_range, is_prefix
from arachne_opt.db.models import CLUSTERS, PLANS, PROBLEMS
from arachne_opt.errors import InputError, StoreError
from arachne_opt.records import ClusterRecord

_SHOWN_CANDIDATES = 5


def cluster_records(
    connection: Connection, *, limit: int, offset: int, name: str | None
) -> tuple[ClusterRecord, ...]:
    """Clusters with the numbers of their problems and plans, the newest first."""
    query = _query()
    if name is not None:
        query = query.where(CLUSTERS.c.name.icontains(name, autoescape=True))
    query = query.order_by(CLUSTERS.c.created_at.desc(), CLUSTERS.c.id.desc())
    return tuple(_record(row) for row in connection.execute(query.limit(limit).offset(offset)))


def cluster_by_reference(connection: Connection, reference: str) -> ClusterRecord:
    """The cluster with an id, a unique beginning of one, or a unique name.

    Raises:
        InputError: there is none, or there are several; the message names them.
        StoreError: what is stored about it is damaged.
    """
    query = select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.id)
    rows = connection.execute(query.where(CLUSTERS.c.name == reference).limit(20)).all()
    if not rows and is_prefix(reference):
        within = CLUSTERS.c.id.between(*id_range(reference))
        rows = connection.execute(query.where(within).limit(_SHOWN_CANDIDATES + 1)).all()
    if not rows:
        what = f"no cluster has the id or the name {reference!r}"
        raise InputError(what, hint="`arachne clusters list`")
    if len(rows) > 1:
        shown = ", ".join(f"{row.id} ({row.name})" for row in rows[:_SHOWN_CANDIDATES])
        raise InputError(f"several clusters are {reference!r}: {shown}", hint="an id")
    return _record(connection.execute(_query().where(CLUSTERS.c.id == rows[0].id)).one())


def _query() -> Any:  # noqa: ANN401  # a Select of many columns
    joined = CLUSTERS.outerjoin(PROBLEMS).outerjoin(PLANS, PLANS.c.problem_id == PROBLEMS.c.id)
    counts = (
        func.count(distinct(PROBLEMS.c.id)).label("problems"),
        func.count(PLANS.c.id).label("plans"),
    )
    # The description is JSON, which PostgreSQL cannot group by; the id decides it.
    return (
        select(CLUSTERS.c.id, CLUSTERS.c.fingerprint, CLUSTERS.c.name, *counts)
        .add_columns(CLUSTERS.c.description, CLUSTERS.c.created_at)
        .select_from(joined)
        .group_by(CLUSTERS.c.id)
    )


def _record(row: Row[Any]) -> ClusterRecord:
    if not isinstance(row.description, dict):
        raise StoreError(f"the stored cluster {row.id} has no description")
    values = dict(row._mapping)
    values["created_at"] = row.created_at.isoformat(timespec="microseconds")
    return ClusterRecord(**values)
