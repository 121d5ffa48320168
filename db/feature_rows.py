"""Facts about problems as rows, and the stored problems that are nearest to one."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    exists,
    func,
    insert,
    select,
    union_all,
    update,
)

from arachne_opt.cost_version import lineage
from arachne_opt.db.engine import Database
from arachne_opt.db.models import COST_MODELS, PLAN_PAYLOADS, PLANS, PROBLEM_FEATURES, PROBLEMS
from arachne_opt.errors import InputError
from arachne_opt.nearness import FARTHEST, Features, distance, features_of_json

LOG = logging.getLogger(__name__)

# Candidates on each side of the wanted work, for each number of devices; and so many other
# numbers of devices on each side of the wanted one.
_OF_WORK = 6
_OF_DEVICES = 4
_BATCH = 100

_F = PROBLEM_FEATURES.c


class Near(NamedTuple):
    """A stored problem and how far it is."""

    distance: float
    fingerprint: str


def ensure_features(connection: Connection, problem_id: str, kind: str, problem: object) -> None:
    """Stores the facts about a problem, once; a problem that cannot be read has none."""
    there = select(_F.problem_id).where(_F.problem_id == problem_id)
    if connection.scalar(there) is not None:
        return
    try:
        features = features_of_json(kind, problem)
    except InputError as error:
        LOG.info("problem %s cannot be found as a near one: %s", problem_id, error)
        return
    row = {
        "problem_id": problem_id,
        "family": features.family,
        "cluster_kinds": features.cluster_kinds,
        "devices": features.devices,
        "work": features.work,
        "detail": features.detail(),
    }
    connection.execute(insert(PROBLEM_FEATURES).values(row))


def near_problems(
    connection: Connection, wanted: Features, exclude: str, limit: int
) -> tuple[Near, ...]:
    """The nearest problems, the nearest first, without the one that is excluded.

    Looked at are problems on the same kinds of nodes, or else on any, whose numbers of devices
    and whose work are the next ones: index look-ups, however many problems there are.
    """
    family = _F.family == wanted.family
    for among in (family & (_F.cluster_kinds == wanted.cluster_kinds), family):
        found = {}
        for row in _candidates(connection, among, wanted):
            away = distance(wanted, _features(row))
            if row.fingerprint != exclude and away <= FARTHEST:
                found[row.fingerprint] = Near(away, row.fingerprint)
        if found:
            return tuple(sorted(found.values())[:limit])
    return ()


def fill(database: Database) -> int:
    """Stores facts and lineages that rows of an older schema lack; returns the number of problems.

    In small transactions: whoever is broken off goes on at the next upgrade.
    """
    database.write(_fill_lineages)
    total, last = 0, ""
    while True:
        rows = database.read(lambda c, after=last: _bare_problems(c, after))  # type: ignore[misc]  # a default binds the loop's value
        if not rows:
            return total
        total += database.write(lambda c, batch=rows: _fill_batch(c, batch))  # type: ignore[misc]  # as above
        last = rows[-1].id


def _candidates(
    connection: Connection, among: ColumnElement[bool], wanted: Features
) -> Iterable[Row[Any]]:
    """The problems to look at, with two questions: each costs a journey to the server."""
    columns = (PROBLEMS.c.fingerprint, *PROBLEM_FEATURES.c)
    sound = select(PLANS.c.id).where(PLANS.c.problem_id == PROBLEMS.c.id)
    planned = exists(sound.where(PLANS.c.quarantine.is_(None)))
    query = select(*columns).select_from(PROBLEM_FEATURES.join(PROBLEMS)).where(among, planned)
    sides = []
    for devices in _device_counts(connection, among, wanted.devices):
        same = query.where(_F.devices == devices)
        sides.append(same.where(_F.work >= wanted.work).order_by(_F.work))
        sides.append(same.where(_F.work < wanted.work).order_by(_F.work.desc()))
    # Only a query from a query may be cut before it is put together with others.
    return connection.execute(union_all(*(select(s.limit(_OF_WORK).subquery()) for s in sides)))


def _device_counts(
    connection: Connection, among: ColumnElement[bool], devices: int
) -> tuple[int, ...]:
    """The wanted number of devices and the next ones that there are, up and down."""
    found: list[ColumnElement[int | None]] = []
    for extreme, beyond in ((func.min, _F.devices.__gt__), (func.max, _F.devices.__lt__)):
        at: Any = devices
        for _ in range(_OF_DEVICES):
            # Uncorrelated: the next one beyond the last one that was found.
            following = select(extreme(_F.devices)).where(among, beyond(at)).correlate(None)
            at = following.scalar_subquery()
            found.append(at)
    others = connection.execute(select(*found)).one()
    return (devices, *(int(count) for count in others if count is not None))


def _features(row: Row[Any]) -> Features:
    detail = row.detail
    return Features(
        family=row.family,
        cluster_kinds=row.cluster_kinds,
        devices=row.devices,
        work=row.work,
        cost_version=detail["cost_version"],
        nodes={kind: tuple(value) for kind, value in detail["nodes"].items()},
        links=detail["links"],
        parts={kind: tuple(value) for kind, value in detail["parts"].items()},
        options=detail["options"],
    )


def _fill_lineages(connection: Connection) -> None:
    bare = select(COST_MODELS.c.id, COST_MODELS.c.version).where(COST_MODELS.c.lineage.is_(None))
    for row in connection.execute(bare).all():
        named = lineage(row.version)
        if named is not None:
            change = update(COST_MODELS).where(COST_MODELS.c.id == row.id)
            connection.execute(change.values(lineage=named))


def _bare_problems(connection: Connection, after: str) -> list[Row[Any]]:
    lacking = PROBLEMS.outerjoin(PROBLEM_FEATURES).join(PLANS, PLANS.c.problem_id == PROBLEMS.c.id)
    query = select(PROBLEMS.c.id, PROBLEMS.c.kind, func.min(PLANS.c.id).label("plan_id"))
    query = query.select_from(lacking).where(_F.problem_id.is_(None), PROBLEMS.c.id > after)
    query = query.group_by(PROBLEMS.c.id, PROBLEMS.c.kind).order_by(PROBLEMS.c.id)
    return list(connection.execute(query.limit(_BATCH)))


def _fill_batch(connection: Connection, rows: list[Row[Any]]) -> int:
    for row in rows:
        payload = select(PLAN_PAYLOADS.c.problem).where(PLAN_PAYLOADS.c.plan_id == row.plan_id)
        try:
            problem = connection.scalar(payload)
        except ValueError as error:
            LOG.warning("the stored plan %s is damaged: %s", row.plan_id, error)
            continue
        ensure_features(connection, row.id, row.kind, problem)
    return len(rows)
