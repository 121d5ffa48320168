"""The plan store: what was planned, how it ran and what was measured."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection

from arachne_opt.db import (
    cluster_rows,
    cost_rows,
    feature_rows,
    plan_rows,
    policy_rows,
    retention,
    run_rows,
)
from arachne_opt.db.engine import Database, open_database
from arachne_opt.db.lease_rows import shared_now
from arachne_opt.db.location import Location, locate
from arachne_opt.db.schema import State, read_schema, require_current
from arachne_opt.db.stats import Stats, count_all
from arachne_opt.errors import InputError, StoreError
from arachne_opt.nearness import Features
from arachne_opt.records import (
    ClusterRecord,
    Measurement,
    PlanRecord,
    PlanSummary,
    PolicyRecord,
    RunRecord,
    RunSummary,
)
from arachne_opt.settings import default_database

LOG = logging.getLogger(__name__)

_LARGEST_PAGE = 10_000
_AT_ONCE = 500


class PlanStore:
    """Plans, runs and measurements of one database; use it as a context manager.

    Every method is one transaction, whole or absent, and may be called from many processes and
    hosts at a time. All raise StoreError where the database is lost, full, locked or read-only.
    A store may be carried over a fork, as long as no method is running.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    @classmethod
    def open(cls, url: str | os.PathLike[str], *, read_only: bool = False) -> Self:
        """An open store; a missing SQLite file is made, with all tables, unless ``read_only``.

        Raises:
            InputError: the address is malformed.
            StoreError: the database cannot be reached, read or written, is not ours, or has
                another schema than this release; the message has the command that helps.
        """
        location = locate(url)
        if location.path is not None and not read_only and not location.path.exists():
            _create(location)
        database = open_database(location, read_only=read_only)
        try:
            schema = database.read(read_schema)
            # An empty file is left behind by a process that died while it made the tables.
            if schema.state is State.EMPTY and location.path is not None and not read_only:
                _create(location)
                schema = database.read(read_schema)
            require_current(schema, location)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Closes all connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def find_plan(self, fingerprint: str) -> PlanRecord | None:
        """The best plan of a problem: lowest objective, then highest bound, then the oldest.

        Its bound is the highest that any plan of the problem proves. Plans whose payload is
        damaged go into quarantine.
        """
        damaged: dict[str, str] = {}
        found = self.database.read(lambda c: plan_rows.best_plan(c, fingerprint, damaged))
        for plan_id, reason in damaged.items() if not self.database.read_only else ():
            self.quarantine_plan(plan_id, reason)
        return found

    def add_plan(self, record: PlanRecord) -> PlanRecord:
        """The record with the id and time of its storing; earlier plans of the problem stay.

        Raises:
            DisagreementError: the checker did not find the plan legal, or it beats its own bound.
            InputError: a payload is no JSON, such as one with NaN in it.
        """
        return self.database.write(lambda c: plan_rows.insert_plan(c, record))

    def add_plans(self, records: Iterable[PlanRecord]) -> tuple[PlanRecord, ...]:
        """The records as they are now stored, all or none; errors are those of ``add_plan``."""
        given = tuple(records)
        return self.database.write(
            lambda c: tuple(plan_rows.insert_plan(c, record) for record in given)
        )

    def get_plan(self, prefix: str) -> PlanRecord:
        """The plan with an id, or with the only id that starts with ``prefix``.

        Raises:
            InputError: there is none, or there are several; the message names them.
        """
        return self.database.read(lambda c: plan_rows.plan_by_prefix(c, prefix))

    def list_plans(
        self,
        *,
        limit: int = 50,
        offset: int = 0,
        kind: str | None = None,
        name: str | None = None,
        cluster: str | None = None,
        fingerprint: str | None = None,
        status: str | None = None,
        solver: str | None = None,
        stale: bool | None = None,
        best: bool = False,
    ) -> tuple[PlanSummary, ...]:
        """Plans without payloads, the newest first.

        ``name`` is a part of the name, in any case; the other filters are exact. ``best`` leaves
        out all plans but the one that answers requests for its problem.
        """
        _refuse_page(limit, offset)
        return self.database.read(
            lambda c: plan_rows.plan_summaries(
                c,
                limit=limit,
                offset=offset,
                kind=kind,
                name=name,
                cluster=cluster,
                fingerprint=fingerprint,
                status=status,
                solver=solver,
                stale=stale,
                best=best,
            )
        )

    def near_plans(
        self, wanted: Features, *, exclude: str = "", limit: int = 2
    ) -> tuple[tuple[float, PlanRecord], ...]:
        """The best plans of the nearest problems with their distances, the nearest first.

        ``exclude`` is the fingerprint of the problem itself.
        """

        def work(connection: Connection) -> tuple[tuple[float, PlanRecord], ...]:
            found: list[tuple[float, PlanRecord]] = []
            for near in feature_rows.near_problems(connection, wanted, exclude, 2 * limit):
                record = plan_rows.best_plan(connection, near.fingerprint)
                if record is not None and len(found) < limit:
                    found.append((near.distance, record))
            return tuple(found)

        return self.database.read(work)

    def quarantine_plan(self, plan_id: str, reason: str) -> None:
        """Takes a plan out of use for good; lists still show it, with the reason."""
        LOG.warning("plan %s is put into quarantine: %s", plan_id, reason)
        self.database.write(lambda c: plan_rows.set_quarantine(c, plan_id, reason))

    def remove_superseded(
        self, *, keep: int = 1, older_than_s: float = 0.0, stale: bool = False, dry: bool = False
    ) -> tuple[str, ...]:
        """Ids of the plans that went: what is neither among the best nor the best proof.

        Args:
            keep: best plans of each problem that stay, besides the one with the highest bound.
            older_than_s: younger plans stay; so do plans with runs.
            stale: plans whose prices were replaced go too, even the best ones.
            dry: only tell which ones would go.
        """
        before = datetime.now(UTC) - timedelta(seconds=older_than_s)
        ids = self.database.read(
            lambda c: retention.superseded_plans(c, keep=keep, before=before, stale=stale)
        )
        # In parts, so that other writers get a turn.
        for first in range(0, 0 if dry else len(ids), _AT_ONCE):
            part = ids[first : first + _AT_ONCE]
            self.database.write(lambda c, part=part: retention.remove_plans(c, part))  # type: ignore[misc]  # a default binds the loop's value
        return ids

    def list_clusters(
        self, *, limit: int = 50, offset: int = 0, name: str | None = None
    ) -> tuple[ClusterRecord, ...]:
        """Clusters that plans were made for, the newest first; ``name`` is a part of the name."""
        _refuse_page(limit, offset)
        return self.database.read(
            lambda c: cluster_rows.cluster_records(c, limit=limit, offset=offset, name=name)
        )

    def get_cluster(self, reference: str) -> ClusterRecord:
        """The cluster with an id, a unique beginning of one, or a unique name.

        Raises:
            InputError: there is none, or there are several; the message names them.
        """
        return self.database.read(lambda c: cluster_rows.cluster_by_reference(c, reference))

    def clock(self) -> datetime:
        """The time by which leases are counted: the server's, for a file that of this machine."""
        return self.database.read(shared_now)

    def stats(self) -> Stats:
        """What is in the database, in numbers."""
        return self.database.read(count_all)

    def delete_plan(self, prefix: str, *, with_runs: bool = False) -> str:
        """The id of the plan that is now gone; what its runs measured stays.

        Raises:
            InputError: the id is unknown or ambiguous, or the plan has runs and ``with_runs`` is
                not set.
        """
        return self.database.write(lambda c: plan_rows.remove_plan(c, prefix, with_runs=with_runs))

    def add_run(self, run: RunRecord, measurements: Iterable[Measurement] = ()) -> RunRecord:
        """The run with the id and time of its storing, together with what it measured.

        Raises:
            InputError: its plan is not in the database.
        """
        samples = tuple(measurements)
        return self.database.write(lambda c: run_rows.insert_run(c, run, samples))

    def get_run(self, prefix: str) -> RunRecord:
        """The run with an id, or with the only id that starts with ``prefix``.

        Raises:
            InputError: there is none, or there are several; the message names them.
        """
        return self.database.read(lambda c: run_rows.run_by_prefix(c, prefix))

    def list_runs(
        self, *, limit: int = 50, offset: int = 0, plan: str | None = None
    ) -> tuple[RunSummary, ...]:
        """Runs without reports, the newest first; ``plan`` is an id or a unique prefix."""
        _refuse_page(limit, offset)

        def work(connection: Connection) -> tuple[RunSummary, ...]:
            plan_id = None if plan is None else plan_rows.plan_id_by_prefix(connection, plan)
            return run_rows.run_summaries(connection, limit=limit, offset=offset, plan_id=plan_id)

        return self.database.read(work)

    def add_cost_model(self, version: str, model: str, description: Mapping[str, Any]) -> None:
        """Keeps what made a version of a cost model of a named architecture."""
        self.database.write(lambda c: cost_rows.keep_cost_model(c, version, model, description))

    def cost_model(self, version: str) -> dict[str, Any] | None:
        """What made a version of a cost model, None where that is not kept."""
        return self.database.read(lambda c: cost_rows.cost_model_description(c, version))

    def add_policy(self, record: PolicyRecord) -> str:
        """The id of a learned policy that is now kept."""
        return self.database.write(lambda c: policy_rows.keep_policy(c, record))

    def policies(self, name: str) -> tuple[PolicyRecord, ...]:
        """The learned policies of a name, the newest first."""
        return self.database.read(lambda c: policy_rows.policy_records(c, name))

    def add_measurements(self, measurements: Iterable[Measurement]) -> int:
        """The number of measurements that were stored, all or none."""
        samples = tuple(measurements)
        return self.database.write(lambda c: run_rows.insert_measurements(c, samples))

    def measurements(
        self,
        *,
        model: str | None = None,
        device_type: str | None = None,
        task: str | None = None,
        source: str | None = None,
    ) -> tuple[Measurement, ...]:
        """Measurements in the order of their storing; filters are exact."""
        return self.database.read(
            lambda c: run_rows.select_measurements(
                c, model=model, device_type=device_type, task=task, source=source
            )
        )


def _create(location: Location) -> None:
    # Alembic takes a third of a second to load, and only the first use of a file needs it.
    from arachne_opt.db import migrate

    assert location.path is not None
    if str(location.path) == default_database():
        try:
            location.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            what = f"cannot make the folder {location.path.parent}: {error.strerror}"
            hint = "another database with --db or ARACHNE_DB"
            raise StoreError(what, where=location.label, hint=hint) from error
    migrate.upgrade(str(location.path))


def _refuse_page(limit: int, offset: int) -> None:
    if not 1 <= limit <= _LARGEST_PAGE or offset < 0:
        what = f"a page has 1 to {_LARGEST_PAGE} rows and starts at 0 or later, not {limit} rows"
        raise InputError(f"{what} from {offset}")
