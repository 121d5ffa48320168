"""Facts about problems for near hits, lineages of cost models, plans in quarantine."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Adds the columns and the table; their rows are filled after the migration."""
    # Without default: a program that was started before the upgrade goes on storing plans.
    op.add_column("cost_models", sa.Column("lineage", sa.Text))
    op.create_index("ix_cost_models_lineage_created_at", "cost_models", ["lineage", "created_at"])
    op.add_column("plans", sa.Column("quarantine", sa.Text))
    op.create_index("ix_plans_problem_id_bound_us", "plans", ["problem_id", "bound_us"])
    op.create_table(
        "problem_features",
        sa.Column("problem_id", sa.String(16), nullable=False),
        sa.Column("family", sa.String(64), nullable=False),
        sa.Column("cluster_kinds", sa.String(64), nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("work", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("problem_id", name="pk_problem_features"),
        sa.ForeignKeyConstraint(
            ["problem_id"],
            ["problems.id"],
            name="fk_problem_features_problem_id_problems",
            ondelete="CASCADE",
        ),
    )
    near = ["family", "cluster_kinds", "devices", "work"]
    op.create_index("ix_problem_features_" + "_".join(near), "problem_features", near)
    wide = ["family", "devices", "work"]
    op.create_index("ix_problem_features_" + "_".join(wide), "problem_features", wide)


def downgrade() -> None:
    """Takes them away again."""
    op.drop_table("problem_features")
    op.drop_index("ix_plans_problem_id_bound_us", "plans")
    op.drop_column("plans", "quarantine")
    op.drop_index("ix_cost_models_lineage_created_at", "cost_models")
    op.drop_column("cost_models", "lineage")
