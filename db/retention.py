"""Which plans may go: the best plan and the best proof of every problem stay."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, exists, func, not_, or_, select

from arachne_opt.db.models import COST_MODELS, PLANS, PROBLEMS, RUNS
from arachne_opt.db.plan_rows import STALE

_HAS_RUNS = exists(select(RUNS.c.id).where(RUNS.c.plan_id == PLANS.c.id).correlate(PLANS))


def superseded_plans(
    connection: Connection, *, keep: int, before: datetime, stale: bool
) -> tuple[str, ...]:
    """Ids of the plans that retention does without, the oldest first.

    Args:
        connection: of a transaction.
        keep: best plans of each problem that stay, besides the one with the highest bound.
        before: plans that were stored later stay, whatever they are.
        stale: plans whose prices were replaced go too, even the best ones.
    """
    ranks = _ranks().subquery()
    outdone = (ranks.c.place > keep) & (ranks.c.proof > 1)
    source = PLANS.join(PROBLEMS).join(COST_MODELS).outerjoin(ranks, ranks.c.id == PLANS.c.id)
    goes = or_(outdone, PLANS.c.quarantine.is_not(None), *((STALE,) if stale else ()))
    query = select(PLANS.c.id).select_from(source).where(goes, PLANS.c.created_at < before)
    query = query.where(not_(_HAS_RUNS)).order_by(PLANS.c.id)
    return tuple(connection.scalars(query))


def remove_plans(connection: Connection, plan_ids: tuple[str, ...]) -> int:
    """Deletes plans that still have no runs; returns how many there were."""
    gone = delete(PLANS).where(PLANS.c.id.in_(plan_ids), not_(_HAS_RUNS))
    return connection.execute(gone).rowcount


def _ranks() -> Select[Any]:
    """For every sound plan its place among those of its problem, by objective and by bound."""
    problem = PLANS.c.problem_id
    best = (PLANS.c.objective_us, PLANS.c.bound_us.desc(), PLANS.c.id)
    proof = (PLANS.c.bound_us.desc(), PLANS.c.objective_us, PLANS.c.id)
    return select(
        PLANS.c.id,
        func.row_number().over(partition_by=problem, order_by=best).label("place"),
        func.row_number().over(partition_by=problem, order_by=proof).label("proof"),
    ).where(PLANS.c.quarantine.is_(None))
