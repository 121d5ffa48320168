"""Plans as rows: what PlanStore asks and writes, on one connection."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    case,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from arachne_opt.cost_version import lineage
from arachne_opt.db.feature_rows import ensure_features
from arachne_opt.db.ids import id_range, new_id
from arachne_opt.db.models import CLUSTERS, COST_MODELS, PLAN_PAYLOADS, PLANS, PROBLEMS, RUNS
from arachne_opt.db.upsert import ensure_row
from arachne_opt.errors import DisagreementError, InputError, StoreError
from arachne_opt.records import PlanRecord, PlanSummary

LOG = logging.getLogger(__name__)

_SHOWN_CANDIDATES = 5

_OTHER = PLANS.alias("other")
_NEWER = COST_MODELS.alias("newer")

# What any plan of a problem proves holds for all of them.
_PROVEN = (
    select(func.max(_OTHER.c.bound_us))
    .where(_OTHER.c.problem_id == PLANS.c.problem_id, _OTHER.c.quarantine.is_(None))
    .correlate(PLANS)
    .scalar_subquery()
)
_BOUND = case((PLANS.c.bound_us < _PROVEN, _PROVEN), else_=PLANS.c.bound_us)
_CURRENT_BOUND = case((PLANS.c.objective_us < _BOUND, PLANS.c.objective_us), else_=_BOUND)
# The prices behind the plan were replaced by newer ones.
STALE = exists(
    select(_NEWER.c.id)
    .where(_NEWER.c.lineage == COST_MODELS.c.lineage)
    .where(_NEWER.c.created_at > COST_MODELS.c.created_at)
    .correlate(COST_MODELS)
)

_COLUMNS: tuple[ColumnElement[Any], ...] = (
    PLANS.c.id,
    PROBLEMS.c.kind,
    PLANS.c.name,
    PROBLEMS.c.fingerprint,
    CLUSTERS.c.fingerprint.label("cluster_fingerprint"),
    PLANS.c.cluster_name,
    COST_MODELS.c.version.label("cost_version"),
    case((PLANS.c.objective_us <= _BOUND, "optimal"), else_=PLANS.c.status).label("status"),
    PLANS.c.objective_us,
    _CURRENT_BOUND.label("bound_us"),
    PLANS.c.solver,
    PLANS.c.seed,
    PLANS.c.wall_s,
    PLANS.c.time_limit_s,
    PLANS.c.verdict,
    PLANS.c.versions,
    PLANS.c.created_at,
    STALE.label("stale"),
    PLANS.c.quarantine,
)
_HEAD = PLANS.join(PROBLEMS).join(CLUSTERS).join(COST_MODELS)


def insert_plan(connection: Connection, record: PlanRecord) -> PlanRecord:
    """The record as it is now stored, with its id and time.

    Raises:
        DisagreementError: the checker did not find the plan legal, or a plan of the problem is
            better than the bound.
    """
    _refuse_untrusted(record)
    moment = datetime.now(UTC)
    plan_id = new_id()
    problem_id = _problem_id(connection, record, moment)
    _refuse_false_bound(connection, record, problem_id)
    row = {
        "id": plan_id,
        "problem_id": problem_id,
        "created_at": moment,
        "versions": dict(record.versions),
    }
    copied = ("name", "cluster_name", "status", "objective_us", "bound_us", "solver", "seed")
    for name in (*copied, "wall_s", "time_limit_s", "verdict"):
        row[name] = getattr(record, name)
    connection.execute(insert(PLANS).values(row))
    payload = {"plan_id": plan_id, "problem": record.problem, "plan": record.plan}
    connection.execute(insert(PLAN_PAYLOADS).values(payload))
    _quarantine_refuted(connection, problem_id, plan_id, record.objective_us)
    return with_identity(record, plan_id, moment)


def best_plan(
    connection: Connection, fingerprint: str, damaged: dict[str, str] | None = None
) -> PlanRecord | None:
    """The plan of a problem with the lowest objective, then the highest bound, then the oldest.

    Its bound is the highest that any plan of the problem proves. Plans in quarantine are left
    out; one whose payload turns out to be damaged is passed over, with a warning that names it,
    and noted in ``damaged`` with the reason.
    """
    query = _full().where(PROBLEMS.c.fingerprint == fingerprint, PLANS.c.quarantine.is_(None))
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
            if damaged is not None:
                damaged[plan_id] = error.what
    return None


def set_quarantine(connection: Connection, plan_id: str, reason: str) -> None:
    """Takes a plan out of use; it stays in the lists until somebody deletes it."""
    connection.execute(update(PLANS).where(PLANS.c.id == plan_id).values(quarantine=reason))


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
    status: str | None = None,
    solver: str | None = None,
    stale: bool | None = None,
    best: bool = False,
) -> tuple[PlanSummary, ...]:
    """Plans without payloads, the newest first; ``best`` leaves only the answer of each problem."""
    query = select(*_COLUMNS).select_from(_HEAD)
    exact: dict[ColumnElement[Any], str | None] = {
        PROBLEMS.c.kind: kind,
        PLANS.c.cluster_name: cluster,
        PROBLEMS.c.fingerprint: fingerprint,
        PLANS.c.solver: solver,
    }
    query = query.where(*(column == value for column, value in exact.items() if value is not None))
    if name is not None:
        query = query.where(PLANS.c.name.icontains(name, autoescape=True))
    if status is not None:
        proven = PLANS.c.objective_us <= _BOUND
        query = query.where(proven if status == "optimal" else ~proven)
    if stale is not None:
        query = query.where(STALE if stale else ~STALE)
    if best:
        query = query.where(PLANS.c.id == best_of_problem())
    query = query.order_by(PLANS.c.created_at.desc(), PLANS.c.id.desc())
    rows = connection.execute(query.limit(limit).offset(offset)).all()
    return tuple(_summary(row) for row in rows)


def best_of_problem() -> ColumnElement[str]:
    """The id of the plan that answers requests for the problem of a row of PLANS."""
    query = select(_OTHER.c.id).correlate(PLANS)
    query = query.where(_OTHER.c.problem_id == PLANS.c.problem_id, _OTHER.c.quarantine.is_(None))
    query = query.order_by(_OTHER.c.objective_us, _OTHER.c.bound_us.desc(), _OTHER.c.id)
    return query.limit(1).scalar_subquery()


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
            connection,
            COST_MODELS,
            {"version": record.cost_version},
            {"created_at": moment, "lineage": lineage(record.cost_version)},
        ),
        "created_at": moment,
    }
    problem_id = ensure_row(connection, PROBLEMS, {"fingerprint": record.fingerprint}, problem)
    ensure_features(connection, problem_id, record.kind, record.problem)
    return problem_id


def _refuse_untrusted(record: PlanRecord) -> None:
    where = f"plan for {record.name}"
    if record.verdict != "legal":
        what = f"the checker says {record.verdict!r}; only legal plans are stored"
        raise DisagreementError(what, where=where)
    if record.bound_us > record.objective_us:
        what = f"the bound {record.bound_us} us is above the objective {record.objective_us} us"
        raise DisagreementError(what, where=where)


def _refuse_false_bound(connection: Connection, record: PlanRecord, problem_id: str) -> None:
    better = PLANS.c.objective_us < record.bound_us
    query = select(PLANS.c.id, PLANS.c.objective_us).where(PLANS.c.problem_id == problem_id)
    row = connection.execute(query.where(better, PLANS.c.quarantine.is_(None)).limit(1)).first()
    if row is not None:
        what = f"the bound {record.bound_us} us is above the objective {row.objective_us} us of"
        raise DisagreementError(f"{what} plan {row.id}", where=f"plan for {record.name}")


def _quarantine_refuted(
    connection: Connection, problem_id: str, plan_id: str, objective_us: int
) -> None:
    """Takes plans out of use whose bound a legal plan has just proven wrong."""
    refuted = PLANS.c.bound_us > objective_us
    query = select(PLANS.c.id).where(PLANS.c.problem_id == problem_id, refuted)
    for other in connection.scalars(query.where(PLANS.c.quarantine.is_(None))).all():
        reason = f"plan {plan_id} is better than the bound of this plan"
        LOG.error("plan %s is put into quarantine: %s", other, reason)
        set_quarantine(connection, other, reason)


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
    values["stale"] = bool(row.stale)
    return PlanRecord(**values)


def _summary(row: Row[Any]) -> PlanSummary:
    values = dict(row._mapping)
    values["created_at"] = row.created_at.isoformat(timespec="microseconds")
    values["stale"] = bool(row.stale)
    del values["versions"], values["cluster_fingerprint"]
    return PlanSummary(**values)
