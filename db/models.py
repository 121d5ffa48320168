"""The tables of the plan database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC; SQLite keeps no time zone, so it is taken off and put back."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The moment in UTC, as the database takes it."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The moment with its time zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _id() -> Column[str]:
    return Column("id", String(16), primary_key=True)


def _created_at() -> Column[datetime]:
    return Column("created_at", UtcDateTime, nullable=False)


def _reference(name: str, target: str, **options: Any) -> Column[str]:  # noqa: ANN401  # Column's
    optional = options.pop("nullable", False)
    key = ForeignKey(f"{target}.id", **options)
    return Column(name, String(16), key, nullable=optional, index=True)


CLUSTERS = Table(
    "clusters",
    METADATA,
    _id(),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("description", JSON),
    _created_at(),
)

MODELS = Table(
    "models",
    METADATA,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("spec", JSON),
    _created_at(),
)

COST_MODELS = Table(
    "cost_models",
    METADATA,
    _id(),
    Column("version", Text, nullable=False, unique=True),
    _reference("model_id", "models", nullable=True),
    Column("holdout_error", Double),
    Column("description", JSON),
    _created_at(),
    # What versions of one cost model have in common; the newest makes plans of the others stale.
    Column("lineage", Text),
    Index(None, "lineage", "created_at"),
)

PROBLEMS = Table(
    "problems",
    METADATA,
    _id(),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("kind", String(16), nullable=False),
    _reference("cluster_id", "clusters"),
    _reference("cost_model_id", "cost_models"),
    _created_at(),
    CheckConstraint("kind in ('cascade', 'pipeline')", name="kind"),
)

# What near problems are found by: see arachne_opt.nearness.
PROBLEM_FEATURES = Table(
    "problem_features",
    METADATA,
    Column(
        "problem_id", String(16), ForeignKey("problems.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("family", String(64), nullable=False),
    Column("cluster_kinds", String(64), nullable=False),
    Column("devices", Integer, nullable=False),
    Column("work", BigInteger, nullable=False),
    Column("detail", JSON, nullable=False),
    Index(None, "family", "cluster_kinds", "devices", "work"),
    Index(None, "family", "devices", "work"),
)

PLANS = Table(
    "plans",
    METADATA,
    _id(),
    Column("problem_id", String(16), ForeignKey("problems.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("cluster_name", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("objective_us", BigInteger, nullable=False),
    Column("bound_us", BigInteger, nullable=False),
    Column("solver", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("wall_s", Double, nullable=False),
    Column("time_limit_s", Double, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("versions", JSON, nullable=False),
    _created_at(),
    # Why the plan is not to be used, such as a payload that is damaged.
    Column("quarantine", Text),
    CheckConstraint("status in ('optimal', 'feasible')", name="status"),
    CheckConstraint("verdict = 'legal'", name="verdict"),
    CheckConstraint("bound_us <= objective_us", name="bound"),
    # The best plan of a problem, the best proof, and the newest plans.
    Index(None, "problem_id", "objective_us", "bound_us"),
    Index(None, "problem_id", "bound_us"),
    Index(None, "created_at", "id"),
)

# Apart from the plans, so that a list of plans reads no payload.
PLAN_PAYLOADS = Table(
    "plan_payloads",
    METADATA,
    Column("plan_id", String(16), ForeignKey("plans.id", ondelete="CASCADE"), primary_key=True),
    Column("problem", JSON, nullable=False),
    Column("plan", JSON, nullable=False),
)

RUNS = Table(
    "runs",
    METADATA,
    _id(),
    _reference("plan_id", "plans"),
    Column("status", String(16), nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("planned_us", BigInteger, nullable=False),
    Column("measured_us", BigInteger, nullable=False),
    Column("report", JSON, nullable=False),
    _created_at(),
    Index(None, "created_at", "id"),
)

MEASUREMENTS = Table(
    "measurements",
    METADATA,
    # SQLite numbers rows by itself only for a column of type INTEGER.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("model_id", String(16), ForeignKey("models.id"), nullable=False),
    _reference("run_id", "runs", nullable=True, ondelete="SET NULL"),
    Column("task", Text, nullable=False),
    Column("device_type", Text, nullable=False),
    Column("degree", Integer, nullable=False),
    Column("batch", Integer, nullable=False),
    Column("frames", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("text_tokens", Integer, nullable=False),
    Column("duration_us", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("source", String(16), nullable=False),
    _created_at(),
    CheckConstraint("source in ('profile', 'replay')", name="source"),
    Index(None, "model_id", "device_type", "task"),
)

# Learned proposers of plans; ``artifact`` holds the weights.
POLICIES = Table(
    "policies",
    METADATA,
    _id(),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("metrics", JSON, nullable=False),
    Column("artifact", LargeBinary),
    _created_at(),
    UniqueConstraint("name", "version"),
)

# Who is at work on which request; see arachne_opt.db.locks.
LEASES = Table(
    "leases",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("token", String(32), nullable=False),
    Column("holder", Text, nullable=False),
    Column("beat_at", UtcDateTime, nullable=False),
    _created_at(),
)

# Which release of arachne-opt made each step of the schema; tells old releases what to install.
SCHEMA_HISTORY = Table(
    "schema_history",
    METADATA,
    Column("revision", String(32), primary_key=True),
    Column("app_version", Text, nullable=False),
    Column("applied_at", UtcDateTime, nullable=False),
)
