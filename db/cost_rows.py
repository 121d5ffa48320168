"""Versions of cost models as rows, on one connection."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select, update

from arachne_opt.cost_version import lineage
from arachne_opt.db.models import COST_MODELS, MODELS
from arachne_opt.db.upsert import ensure_row


def keep_cost_model(
    connection: Connection,
    version: str,
    model: str,
    description: Mapping[str, Any],
    holdout_error: float | None = None,
) -> None:
    """Keeps what made a version; one that plans brought in before gets its description."""
    moment = datetime.now(UTC)
    values = {"created_at": moment, "lineage": lineage(version)}
    ensure_row(connection, COST_MODELS, {"version": version}, values)
    model_id = ensure_row(connection, MODELS, {"name": model}, {"created_at": moment})
    row = update(COST_MODELS).where(COST_MODELS.c.version == version)
    connection.execute(
        row.values(
            model_id=model_id,
            description=dict(description),
            holdout_error=holdout_error,
            created_at=moment,
        )
    )


def cost_model_description(connection: Connection, version: str) -> dict[str, Any] | None:
    """What made a version, None where it is unknown."""
    query = select(COST_MODELS.c.description).where(COST_MODELS.c.version == version)
    found = connection.scalar(query)
    return found if isinstance(found, dict) else None


def newest_cost_model(connection: Connection, family: str) -> tuple[str, dict[str, Any]] | None:
    """Version and description of the newest cost model whose lineage begins with ``family``."""
    columns = (COST_MODELS.c.version, COST_MODELS.c.description)
    of_family = COST_MODELS.c.lineage.startswith(f"{family}/", autoescape=True)
    newest = select(*columns).where(of_family).order_by(COST_MODELS.c.created_at.desc())
    for version, description in connection.execute(newest):
        if isinstance(description, dict) and description:
            return str(version), description
    return None


def cost_model_families(connection: Connection, kind: str) -> tuple[str, ...]:
    """Names of the cost models of a kind, such as ``learned``, in order."""
    query = select(COST_MODELS.c.lineage).where(
        COST_MODELS.c.lineage.startswith(f"{kind}/", autoescape=True),
        COST_MODELS.c.description.is_not(None),
    )
    return tuple(sorted({str(found).split("/")[1] for found in connection.scalars(query)}))
