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
    connection: Connection, version: str, model: str, description: Mapping[str, Any]
) -> None:
    """Keeps what made a version; one that plans brought in before gets its description."""
    moment = datetime.now(UTC)
    values = {"created_at": moment, "lineage": lineage(version)}
    ensure_row(connection, COST_MODELS, {"version": version}, values)
    model_id = ensure_row(connection, MODELS, {"name": model}, {"created_at": moment})
    row = update(COST_MODELS).where(COST_MODELS.c.version == version)
    connection.execute(row.values(model_id=model_id, description=dict(description)))


def cost_model_description(connection: Connection, version: str) -> dict[str, Any] | None:
    """What made a version, None where it is unknown."""
    query = select(COST_MODELS.c.description).where(COST_MODELS.c.version == version)
    found = connection.scalar(query)
    return found if isinstance(found, dict) else None
