"""Plans as rows: what PlanStore asks and writes, on one connection."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select

from arachne_opt.db.ids import id_range, new_id
from arachne_opt.db.models import CLUSTERS, COST_MODELS, PLAN_PAYLOADS, PLANS, PROBLEMS, RUNS
from arachne_opt.db.upsert import ensure_row
from arachne_opt.errors import DisagreementError, InputError, StoreError
from arachne_opt.records import PlanRecord, PlanSummary

LOG = logging.getLogger(__name__)

_SHOWN_CANDIDATES = 5

_COLUMNS: tuple[ColumnElement[Any], ...] = (
    PLANS.c.id,
    PROBLEMS.c.kind,
    PLANS.c.name,
    PROBLEMS.c.fingerprint,
    CLUSTERS.c.fingerprint.label("cluster_fingerprint"),
    PLANS.c.cluster_name,
    COST_MODELS.c.version.label("cost_version"),
    PLANS.c.status,
    PLANS.c.objective_us,
    PLANS.c.bound_us,
    PLANS.c.solver,
    PLANS.c.seed,
    PLANS.c.wall_s,
    PLANS.c.time_limit_s,
    PLANS.c.verdict,
    PLANS.c.versions,
    PLANS.c.created_at,
)
_HEAD = PLANS.join(PROBLEMS).join(CLUSTERS).join(COST_MODELS)


def insert_plan(connection: Connection, record: PlanRecord) -> PlanRecord:
    """The record as it is now stored, with its id and time.

    Raises:
        DisagreementError: the checker did not find the plan legal, or it beats its own bound.
    """
    _refuse_untrusted(record)
    moment = datetime.now(UTC)
    plan_id = new_id()
    row = {
        "id": plan_id,
        "problem_id": _problem_id(connection, record, moment),
        "created_at": moment,
        "versions": dict(record.versions),
    }
    copied = ("name", "cluster_name", "status", "objective_us", "bound_us", "solver", "seed")
    for name in (*copied, "wall_s", "time_limit_s", "verdict"):
        row[name] = getattr(record, name)
    connection.execute(insert(PLANS).values(row))
    payload = {"plan_id": plan_id, "problem": record.problem, "plan": record.plan}
    connection.execute(insert(PLAN_PAYLOADS).values(payload))
    return with_identity(record, plan_id, moment)


def best_plan(connection: Connection, fingerprint: str) -> PlanRecord | None:
    """The plan of a problem with the lowest objective, then the highest bound, then the oldest.

    A plan whose payload is damaged is passed over, with a warning that names it.
    """
    query = _full().where(PROBLEMS.c.fingerprint == fingerprint)
    query = query.order_by(PLANS.c.objective_us, PLANS.c.bound_us.desc(), PLANS.c.id)
    try:
        row = connection.execute(query.limit(1)).one_or_none()
        return None if row is None else _record(row)
    except ValueError:
        ids = connection.scalars(query.with_only_columns(PLANS.c.id)).all()
    for plan_id in ids:
        try:
            return _plan(connection, plan_id)
        except StoreError as error:
            LOG.warning("%s", error)
    return None


def plan_by_prefix(connection: Connection, prefix: str) -> PlanRecord:
    """The plan whose id starts with ``prefix``.

    Raises:
        InputError: no plan has such an id, or several have.
        StoreError: its payload is damaged.
    """
    return _plan(connection, plan_id_by_prefix(connection, prefix))


def plan_id_by_prefix(connection: Connection, prefix: str) -> str:
    """The only id that starts with ``prefix``.

    Raises:
        InputError: no plan has such an id, or several have.
    """
    within = PLANS.c.id.between(*id_range(prefix))
    query = select(PLANS.c.id, PLANS.c.name).where(within).order_by(PLANS.c.id)
    rows = connection.execute(query.limit(_SHOWN_CANDIDATES + 1)).all()
    if not rows:
        raise InputError(f"no plan has the id {prefix!r}", hint="an id from `arachne plans list`")
    if len(rows) > 1:
        shown = ", ".join(f"{row.id} ({row.name})" for row in rows[:_SHOWN_CANDIDATES])
        more = " and others" if len(rows) > _SHOWN_CANDIDATES else ""
        what = f"several plans have ids that start with {prefix!r}: {shown}{more}"
        raise InputError(what, hint="more digits")
    return str(rows[0].id)


def plan_summaries(
    connection: Connection,
    *,
    limit: int,
    offset: int,
    kind: str | None,
    name: str | None,
    cluster: str | None,
    fingerprint: str | None,
) -> tuple[PlanSummary, ...]:
    """Plans without payloads, the newest first."""
    query = select(*_COLUMNS).select_from(_HEAD)
    if kind is not None:
        query = query.where(PROBLEMS.c.kind == kind)
    if name is not None:
        query = query.where(PLANS.c.name.icontains(name, autoescape=True))
    if cluster is not None:
        query = query.where(PLANS.c.cluster_name == cluster)
    if fingerprint is not None:
        query = query.where(PROBLEMS.c.fingerprint == fingerprint)
    query = query.order_by(PLANS.c.created_at.desc(), PLANS.c.id.desc())
    rows = connection.execute(query.limit(limit).offset(offset)).all()
    return tuple(_summary(row) for row in rows)


def remove_plan(connection: Connection, prefix: str, *, with_runs: bool) -> str:
    """The id of the plan that is now gone; what its runs measured stays.

    Raises:
        InputError: the id is unknown or ambiguous, or the plan has runs and they were not meant.
    """
    plan_id = plan_id_by_prefix(connection, prefix)
    its_runs = RUNS.c.plan_id == plan_id
    runs = connection.scalar(select(func.count()).select_from(RUNS).where(its_runs))
    if runs and not with_runs:
        raise InputError(f"plan {plan_id} has {runs} runs", hint="deleting it with its runs")
    connection.execute(delete(RUNS).where(its_runs))
    connection.execute(delete(PLANS).where(PLANS.c.id == plan_id))
    return plan_id


def with_identity(record: PlanRecord, plan_id: str, moment: datetime) -> PlanRecord:
    """The record with what the database gave it."""
    return replace(record, id=plan_id, created_at=moment.isoformat(timespec="microseconds"))


def _problem_id(connection: Connection, record: PlanRecord, moment: datetime) -> str:
    cluster = {
        "name": record.cluster_name,
        "description": record.problem.get("cluster"),
        "created_at": moment,
    }
    cluster_key = {"fingerprint": record.cluster_fingerprint}
    problem = {
        "kind": record.kind,
        "cluster_id": ensure_row(connection, CLUSTERS, cluster_key, cluster),
        "cost_model_id": ensure_row(
            connection, COST_MODELS, {"version": record.cost_version}, {"created_at": moment}
        ),
        "created_at": moment,
    }
    return ensure_row(connection, PROBLEMS, {"fingerprint": record.fingerprint}, problem)


def _refuse_untrusted(record: PlanRecord) -> None:
    where = f"plan for {record.name}"
    if record.verdict != "legal":
        what = f"the checker says {record.verdict!r}; only legal plans are stored"
        raise DisagreementError(what, where=where)
    if record.bound_us > record.objective_us:
        what = f"the bound {record.bound_us} us is above the objective {record.objective_us} us"
        raise DisagreementError(what, where=where)


def _full() -> Select[Any]:
    payload = PLAN_PAYLOADS.c
    source = _HEAD.join(PLAN_PAYLOADS, payload.plan_id == PLANS.c.id)
    return select(*_COLUMNS, payload.problem, payload.plan).select_from(source)


def _plan(connection: Connection, plan_id: str) -> PlanRecord:
    try:
        return _record(connection.execute(_full().where(PLANS.c.id == plan_id)).one())
    except ValueError as error:
        what = f"the stored plan {plan_id} is damaged: {error}"
        raise StoreError(what, hint=f"`arachne plans delete {plan_id}`") from error


def _record(row: Row[Any]) -> PlanRecord:
    values = dict(row._mapping)
    for name in ("problem", "plan", "versions"):
        if not isinstance(values[name], dict):
            raise ValueError(f"its {name} is no JSON object")
    values["created_at"] = row.created_at.isoformat(timespec="microseconds")
    return PlanRecord(**values)


def _summary(row: Row[Any]) -> PlanSummary:
    values = dict(row._mapping)
    values["created_at"] = row.created_at.isoformat(timespec="microseconds")
    del values["versions"], values["cluster_fingerprint"]
    return PlanSummary(**values)
