"""Runs and what they measured as rows, on one connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select

from arachne_opt.db.ids import id_range, new_id
from arachne_opt.db.models import MEASUREMENTS, MODELS, PLANS, RUNS
from arachne_opt.db.upsert import ensure_row
from arachne_opt.errors import InputError, StoreError
from arachne_opt.records import Measurement, RunRecord, RunSummary

_STORED = tuple(f.name for f in fields(Measurement) if f.name not in ("model", "recompute"))
# Samples that computed activations again are kept as those of a model of this name.
_RECOMPUTING = ",recompute"
_SHOWN_CANDIDATES = 5


def insert_run(
    connection: Connection, run: RunRecord, measurements: Iterable[Measurement]
) -> RunRecord:
    """The run as it is now stored together with its measurements.

    Raises:
        InputError: the plan is not in the database.
    """
    if connection.scalar(select(PLANS.c.id).where(PLANS.c.id == run.plan_id)) is None:
        raise InputError(f"the run is of plan {run.plan_id!r}, which is not in the database")
    moment = datetime.now(UTC)
    row = {
        "id": new_id(),
        "plan_id": run.plan_id,
        "status": run.status,
        "world_size": run.world_size,
        "planned_us": run.planned_us,
        "measured_us": run.measured_us,
        "report": run.report,
        "created_at": moment,
    }
    connection.execute(insert(RUNS).values(row))
    insert_measurements(connection, measurements, run_id=str(row["id"]))
    created_at = moment.isoformat(timespec="microseconds")
    return replace(run, id=str(row["id"]), created_at=created_at)


def insert_measurements(
    connection: Connection, measurements: Iterable[Measurement], *, run_id: str | None = None
) -> int:
    """The number of measurements that are now stored."""
    samples = tuple(measurements)
    if not samples:
        return 0
    moment = datetime.now(UTC)
    # Sorted, so that two writers never wait for each other crosswise.
    names = sorted({_kept_name(sample) for sample in samples})
    key_of = {n: ensure_row(connection, MODELS, {"name": n}, {"created_at": moment}) for n in names}
    rows = []
    for sample in samples:
        row = {key: value for key, value in asdict(sample).items() if key in _STORED}
        key = key_of[_kept_name(sample)]
        rows.append(row | {"model_id": key, "run_id": run_id, "created_at": moment})
    connection.execute(insert(MEASUREMENTS), rows)
    return len(rows)


def select_measurements(
    connection: Connection,
    *,
    model: str | None,
    device_type: str | None,
    task: str | None,
    source: str | None,
) -> tuple[Measurement, ...]:
    """Measurements in the order of their storing."""
    columns = [MEASUREMENTS.c[name] for name in _STORED]
    query = select(MODELS.c.name.label("model"), *columns)
    query = query.select_from(MEASUREMENTS.join(MODELS)).order_by(MEASUREMENTS.c.id)
    wanted = {
        MEASUREMENTS.c.device_type: device_type,
        MEASUREMENTS.c.task: task,
        MEASUREMENTS.c.source: source,
    }
    for column, value in wanted.items():
        if value is not None:
            query = query.where(column == value)
    if model is not None:
        query = query.where(MODELS.c.name.in_((model, model + _RECOMPUTING)))
    return tuple(_sample(row._asdict()) for row in connection.execute(query))


def _kept_name(sample: Measurement) -> str:
    return sample.model + _RECOMPUTING * sample.recompute


def _sample(row: Mapping[str, Any]) -> Measurement:
    name = row["model"]
    model = name.removesuffix(_RECOMPUTING)
    return Measurement(**{**row, "model": model}, recompute=name != model)


def run_by_prefix(connection: Connection, prefix: str) -> RunRecord:
    """The only run whose id starts with ``prefix``.

    Raises:
        InputError: no run has such an id, or several have.
        StoreError: its report is damaged.
    """
    within = RUNS.c.id.between(*id_range(prefix))
    query = select(RUNS.c.id).where(within).order_by(RUNS.c.id).limit(_SHOWN_CANDIDATES + 1)
    ids = connection.scalars(query).all()
    if not ids:
        raise InputError(f"no run has the id {prefix!r}", hint="an id from `arachne runs list`")
    if len(ids) > 1:
        shown = ", ".join(ids[:_SHOWN_CANDIDATES])
        what = f"several runs have ids that start with {prefix!r}: {shown}"
        raise InputError(what, hint="more digits")
    try:
        row = connection.execute(select(RUNS).where(RUNS.c.id == ids[0])).one()
    except ValueError as error:
        raise StoreError(f"the report of the stored run {ids[0]} is damaged: {error}") from error
    values = dict(row._mapping)
    values["created_at"] = row.created_at.isoformat(timespec="microseconds")
    return RunRecord(**values)


def run_summaries(
    connection: Connection, *, limit: int, offset: int, plan_id: str | None
) -> tuple[RunSummary, ...]:
    """Runs without reports, the newest first."""
    names = [f.name for f in fields(RunSummary) if f.name != "plan_name"]
    query = select(*(RUNS.c[name] for name in names), PLANS.c.name.label("plan_name"))
    query = query.select_from(RUNS.join(PLANS))
    if plan_id is not None:
        query = query.where(RUNS.c.plan_id == plan_id)
    query = query.order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc()).limit(limit).offset(offset)
    found = []
    for row in connection.execute(query):
        values = dict(row._mapping)
        values["created_at"] = row.created_at.isoformat(timespec="microseconds")
        found.append(RunSummary(**values))
    return tuple(found)
