"""Two releases at one database, and several upgrades at a time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import MetaData, create_engine, insert, text

from arachne_opt.db import migrate, schema, store
from arachne_opt.db.engine import open_database
from arachne_opt.db.file_lock import file_lock
from arachne_opt.db.location import locate
from arachne_opt.db.patience import Patience
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import StoreError
from tests.db.builders import plan_record
from tests.db.conftest import KINDS
from tests.db.workers import finish, start

OLD = Path(__file__).parent / "data" / "schema_0001.db"
UPGRADE_LOCK = 0x61726163686E65


@pytest.fixture(params=KINDS)
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of schema 0001 with two plans, on each kind of server."""
    if request.param == "sqlite":
        return str(shutil.copy(OLD, tmp_path / "plans.db"))
    url = str(request.getfixturevalue("postgres_url"))
    database = open_database(locate(url))
    settings = migrate.config()
    with database.engine.connect() as connection:
        settings.attributes["connection"] = connection
        command.upgrade(settings, "0001")
    _copy_rows(database)
    database.close()
    return url


def _copy_rows(database) -> None:
    source = create_engine(f"sqlite:///file:{OLD}?mode=ro&immutable=1&uri=true")
    tables = MetaData()
    tables.reflect(source)
    target = MetaData()
    target.reflect(database.engine)
    with source.connect() as reader, database.engine.begin() as writer:
        for table in target.sorted_tables:
            if table.name in ("alembic_version", "schema_history"):
                continue
            rows = [
                dict(row) for row in reader.execute(tables.tables[table.name].select()).mappings()
            ]
            if rows:
                writer.execute(insert(table), rows)
    source.dispose()


@contextmanager
def upgrade_lock(url: str) -> Iterator[None]:
    """Holds what an upgrade at work holds."""
    location = locate(url)
    if location.path is not None:
        with file_lock(location.path, "upgrade", Patience(timeout_s=0)) as held:
            assert held
            yield
        return
    database = open_database(location)
    with database.engine.connect() as connection:
        connection.execute(text(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK})"))
        yield
    database.close()


def test_four_upgrades_of_an_old_database_all_succeed_and_one_does_it(old_url: str) -> None:
    heads = finish(*[start("upgrade", old_url) for _ in range(4)], timeout_s=120)
    assert {line.strip() for line in heads} == {migrate.head()}
    assert migrate.check(old_url).ok
    with PlanStore.open(old_url) as opened:
        assert {p.name for p in opened.list_plans()} == {"iteration of kept", "iteration of other"}
        steps = text("SELECT count(*), count(DISTINCT revision) FROM schema_history")
        counted = opened.database.read(lambda c: tuple(c.execute(steps).one()))
        assert counted[0] == counted[1]


@pytest.mark.postgres
def test_four_upgrades_of_an_empty_server_all_succeed(postgres_url: str) -> None:
    heads = finish(*[start("upgrade", postgres_url) for _ in range(4)], timeout_s=120)
    assert {line.strip() for line in heads} == {migrate.head()}
    health = migrate.check(postgres_url)
    assert health.ok, health


def test_a_new_release_waits_for_the_upgrade_of_another(old_url: str) -> None:
    with upgrade_lock(old_url):
        waiting = start("upgrade", old_url)
        time.sleep(2)
        assert waiting.poll() is None
        # Meanwhile the database is of the old schema, and says how it becomes a new one.
        with pytest.raises(StoreError, match=r"this release needs .*; try `arachne db upgrade"):
            PlanStore.open(old_url)
    assert [line.strip() for line in finish(waiting, timeout_s=60)] == [migrate.head()]
    PlanStore.open(old_url).close()


def test_an_old_release_is_refused_by_an_upgraded_database(
    old_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = migrate.upgrade(old_url)
    monkeypatch.setattr(schema, "HEAD", "0001")
    for attempt in (PlanStore.open, migrate.check):
        with pytest.raises(StoreError, match=f"has schema {head}, made by arachne-opt") as caught:
            attempt(old_url)
        assert caught.value.hint is not None
        assert caught.value.hint.startswith("pip install 'arachne-opt>=")


def test_an_old_program_that_is_still_running_loses_no_plan(
    old_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It inserts rows without the columns that it does not know."""
    migrate.upgrade(old_url)
    monkeypatch.setattr(store.plan_rows, "ensure_features", lambda *_: None)
    monkeypatch.setattr(store.plan_rows, "lineage", lambda _: None)
    with PlanStore.open(old_url) as opened:
        plan = opened.add_plan(plan_record("late", cost_version="table/m/T:1"))
        assert opened.find_plan(plan.fingerprint) == plan
    monkeypatch.undo()
    migrate.upgrade(old_url)
    assert migrate.check(old_url).ok
