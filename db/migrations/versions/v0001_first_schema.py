"""The first schema."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes all tables."""
    _create_schema_history()
    _create_clusters_and_models()
    _create_problems()
    _create_plans()
    _create_runs()
    _create_measurements()
    _create_policies()


def downgrade() -> None:
    """Leaves an empty database; the table of alembic itself stays."""
    for table in ("policies", "measurements", "runs", "plan_payloads", "plans", "problems"):
        op.drop_table(table)
    for table in ("cost_models", "models", "clusters", "schema_history"):
        op.drop_table(table)


def _id(table: str) -> tuple[sa.Column[str], sa.PrimaryKeyConstraint]:
    key = sa.PrimaryKeyConstraint("id", name=f"pk_{table}")
    return sa.Column("id", sa.String(16), nullable=False), key


def _reference(
    table: str, column: str, target: str, ondelete: str | None = None
) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}_{target}"
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=name, ondelete=ondelete)


def _created_at() -> sa.Column[datetime]:
    return sa.Column("created_at", sa.DateTime(timezone=True), nullable=False)


def _required(kind: Any, *names: str) -> list[sa.Column[Any]]:  # noqa: ANN401  # as Column's
    return [sa.Column(name, kind, nullable=False) for name in names]


def _create_schema_history() -> None:
    op.create_table(
        "schema_history",
        sa.Column("revision", sa.String(32), nullable=False),
        sa.Column("app_version", sa.Text, nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("revision", name="pk_schema_history"),
    )


def _create_clusters_and_models() -> None:
    op.create_table(
        "clusters",
        *_id("clusters"),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.JSON),
        _created_at(),
        sa.UniqueConstraint("fingerprint", name="uq_clusters_fingerprint"),
    )
    op.create_table(
        "models",
        *_id("models"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("spec", sa.JSON),
        _created_at(),
        sa.UniqueConstraint("name", name="uq_models_name"),
    )
    op.create_table(
        "cost_models",
        *_id("cost_models"),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("model_id", sa.String(16)),
        sa.Column("holdout_error", sa.Double),
        sa.Column("description", sa.JSON),
        _created_at(),
        sa.UniqueConstraint("version", name="uq_cost_models_version"),
        _reference("cost_models", "model_id", "models"),
    )
    op.create_index("ix_cost_models_model_id", "cost_models", ["model_id"])


def _create_problems() -> None:
    op.create_table(
        "problems",
        *_id("problems"),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        *_required(sa.String(16), "kind", "cluster_id", "cost_model_id"),
        _created_at(),
        sa.UniqueConstraint("fingerprint", name="uq_problems_fingerprint"),
        sa.CheckConstraint("kind in ('cascade', 'pipeline')", name=op.f("ck_problems_kind")),
        _reference("problems", "cluster_id", "clusters"),
        _reference("problems", "cost_model_id", "cost_models"),
    )
    op.create_index("ix_problems_cluster_id", "problems", ["cluster_id"])
    op.create_index("ix_problems_cost_model_id", "problems", ["cost_model_id"])


def _create_plans() -> None:
    op.create_table(
        "plans",
        *_id("plans"),
        sa.Column("problem_id", sa.String(16), nullable=False),
        *_required(sa.Text, "name", "cluster_name"),
        sa.Column("status", sa.String(16), nullable=False),
        *_required(sa.BigInteger, "objective_us", "bound_us"),
        sa.Column("solver", sa.Text, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        *_required(sa.Double, "wall_s", "time_limit_s"),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("versions", sa.JSON, nullable=False),
        _created_at(),
        sa.CheckConstraint("status in ('optimal', 'feasible')", name=op.f("ck_plans_status")),
        sa.CheckConstraint("verdict = 'legal'", name=op.f("ck_plans_verdict")),
        sa.CheckConstraint("bound_us <= objective_us", name=op.f("ck_plans_bound")),
        _reference("plans", "problem_id", "problems"),
    )
    best = ["problem_id", "objective_us", "bound_us"]
    op.create_index("ix_plans_problem_id_objective_us_bound_us", "plans", best)
    op.create_index("ix_plans_created_at_id", "plans", ["created_at", "id"])
    op.create_table(
        "plan_payloads",
        sa.Column("plan_id", sa.String(16), nullable=False),
        *_required(sa.JSON, "problem", "plan"),
        sa.PrimaryKeyConstraint("plan_id", name="pk_plan_payloads"),
        _reference("plan_payloads", "plan_id", "plans", "CASCADE"),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        *_id("runs"),
        *_required(sa.String(16), "plan_id", "status"),
        sa.Column("world_size", sa.Integer, nullable=False),
        *_required(sa.BigInteger, "planned_us", "measured_us"),
        sa.Column("report", sa.JSON, nullable=False),
        _created_at(),
        _reference("runs", "plan_id", "plans"),
    )
    op.create_index("ix_runs_plan_id", "runs", ["plan_id"])
    op.create_index("ix_runs_created_at_id", "runs", ["created_at", "id"])


def _create_measurements() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    sizes = ("degree", "batch", "frames", "height", "width", "text_tokens")
    op.create_table(
        "measurements",
        sa.Column("id", number, nullable=False),
        sa.Column("model_id", sa.String(16), nullable=False),
        sa.Column("run_id", sa.String(16)),
        *_required(sa.Text, "task", "device_type"),
        *_required(sa.Integer, *sizes),
        *_required(sa.BigInteger, "duration_us", "memory_bytes"),
        sa.Column("source", sa.String(16), nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.CheckConstraint("source in ('profile', 'replay')", name=op.f("ck_measurements_source")),
        _reference("measurements", "model_id", "models"),
        _reference("measurements", "run_id", "runs", "SET NULL"),
    )
    find = ["model_id", "device_type", "task"]
    op.create_index("ix_measurements_model_id_device_type_task", "measurements", find)
    op.create_index("ix_measurements_run_id", "measurements", ["run_id"])


def _create_policies() -> None:
    op.create_table(
        "policies",
        *_id("policies"),
        *_required(sa.Text, "name", "version"),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("artifact", sa.LargeBinary),
        _created_at(),
        sa.UniqueConstraint("name", "version", name="uq_policies_name_version"),
    )
