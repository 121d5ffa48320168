"""Schemas: made, upgraded, checked and refused."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import Column, MetaData, Text, text

from arachne_opt import __version__
from arachne_opt.db import health, migrate, models, schema
from arachne_opt.db.engine import open_database
from arachne_opt.db.location import locate
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import StoreError
from tests.db.builders import measurement, plan_record, run_record

DATA = Path(__file__).parent / "data"
HEAD = schema.HEAD
NEXT = f"{int(HEAD) + 1:04d}"


def run(url: str, *statements: str) -> None:
    database = open_database(locate(url))
    try:
        for statement in statements:
            database.write(lambda c, s=statement: c.execute(text(s)) and None)
    finally:
        database.close()


def test_head_is_the_newest_migration() -> None:
    assert migrate.known_revisions()[-1] == migrate.head() == schema.HEAD


def test_a_database_at_head_is_healthy_and_has_no_drift(url: str) -> None:
    assert migrate.current(url) == migrate.head()
    found = migrate.check(url)
    assert found.ok, found
    assert found.revision == migrate.head()


def test_upgrading_again_changes_nothing(url: str) -> None:
    with PlanStore.open(url) as store:
        plan = store.add_plan(plan_record())
    assert migrate.upgrade(url) == migrate.head()
    with PlanStore.open(url) as store:
        assert store.get_plan(plan.id) == plan


def test_the_schema_goes_down_to_nothing_and_up_again(url: str) -> None:
    database = open_database(locate(url))
    settings = migrate.config()
    writer = database.engine.execution_options(arachne_write=True)
    with writer.connect() as connection:
        settings.attributes["connection"] = connection
        command.downgrade(settings, "base")
    database.close()
    assert migrate.current(url) is None
    assert migrate.upgrade(url) == migrate.head()
    assert migrate.check(url).ok


def test_the_history_names_the_release(url: str) -> None:
    database = open_database(locate(url), read_only=True)
    assert database.read(schema.read_schema).app_version == __version__
    database.close()


def test_a_missing_file_is_made_at_head(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    with PlanStore.open(path) as store:
        store.add_plan(plan_record())
    assert migrate.current(str(path)) == migrate.head()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_an_empty_file_is_filled_for_writing_and_refused_for_reading(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    path.touch()
    with pytest.raises(StoreError, match=f"no tables yet; try `arachne db upgrade --db {path}`"):
        PlanStore.open(path, read_only=True)
    with PlanStore.open(path) as store:
        assert store.list_plans() == ()


@pytest.mark.postgres
def test_an_empty_server_is_refused_until_it_is_upgraded(postgres_url: str) -> None:
    with pytest.raises(StoreError, match="no tables yet; try `arachne db upgrade`"):
        PlanStore.open(postgres_url)
    assert migrate.current(postgres_url) is None
    migrate.upgrade(postgres_url)
    PlanStore.open(postgres_url).close()


def test_an_older_schema_is_refused_with_the_command(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "HEAD", NEXT)
    expected = (
        f"has schema {HEAD}, this release needs {NEXT}; try `arachne db upgrade --db {sqlite_file}`"
    )
    for read_only in (False, True):
        with pytest.raises(StoreError, match=expected):
            PlanStore.open(sqlite_file, read_only=read_only)
    monkeypatch.setenv("XDG_DATA_HOME", str(sqlite_file.parent))
    sqlite_file.parent.joinpath("arachne").mkdir()
    sqlite_file.rename(sqlite_file.parent / "arachne" / "plans.db")
    with pytest.raises(StoreError, match=r"try `arachne db upgrade`$"):
        PlanStore.open(sqlite_file.parent / "arachne" / "plans.db")


def test_a_newer_schema_is_refused_and_names_the_release_that_made_it(url: str) -> None:
    run(
        url,
        "UPDATE alembic_version SET version_num = '0042'",
        "UPDATE schema_history SET revision = '0042', app_version = '7.5.0'"
        f" WHERE revision = '{HEAD}'",
    )
    for attempt in (PlanStore.open, migrate.upgrade, migrate.check):
        with pytest.raises(StoreError, match=r"schema 0042, made by arachne-opt 7\.5\.0") as caught:
            attempt(url)
        assert caught.value.hint == "pip install 'arachne-opt>=7.5.0'"
    assert migrate.current(url) == "0042"


def test_a_newer_schema_without_history_is_refused_too(url: str) -> None:
    run(url, "UPDATE alembic_version SET version_num = '0042'", "DROP TABLE schema_history")
    with pytest.raises(StoreError, match="made by arachne-opt a later release"):
        PlanStore.open(url)


@pytest.mark.parametrize("versioned", [False, True])
def test_a_database_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, versioned: bool
) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE moz_cookies (id)")
        if versioned:
            connection.execute("CREATE TABLE alembic_version (version_num)")
            connection.execute("INSERT INTO alembic_version VALUES ('a1b2c3d4e5f6')")
    connection.close()
    before = path.read_bytes()
    for attempt in (PlanStore.open, migrate.upgrade, migrate.current, migrate.check):
        with pytest.raises(StoreError, match=r"another program.*moz_cookies"):
            attempt(str(path))
    assert path.read_bytes() == before


def test_drift_is_named(url: str) -> None:
    run(url, "ALTER TABLE runs ADD COLUMN mood TEXT", "DROP INDEX ix_plans_created_at_id")
    found = migrate.check(url)
    assert not found.ok
    text_of_all = " ".join(found.drift)
    assert "mood" in text_of_all
    assert "ix_plans_created_at_id" in text_of_all


def test_plans_without_payload_or_with_a_wrong_one_are_named(url: str) -> None:
    with PlanStore.open(url) as store:
        plans = [store.add_plan(plan_record(f"p{i}")) for i in range(2)]
    run(url, f"DELETE FROM plan_payloads WHERE plan_id = '{plans[0].id}'")
    run(url, f"UPDATE plan_payloads SET problem = '[1]' WHERE plan_id = '{plans[1].id}'")
    assert migrate.check(url).damage == (
        f"plan_payloads {plans[1].id}: problem is no JSON object",
        f"plans {plans[0].id}: there is no payload",
    )


def test_broken_json_and_dangling_references_are_named(sqlite_file: Path) -> None:
    with PlanStore.open(sqlite_file) as store:
        plan = store.add_plan(plan_record())
    with sqlite3.connect(sqlite_file) as connection:
        connection.execute("UPDATE plan_payloads SET plan = '{\"runs\": ['")
        connection.execute("DELETE FROM problems")
    connection.close()
    found = migrate.check(str(sqlite_file))
    assert found.damage == (f"plan_payloads {plan.id}: plan is no JSON object",)
    assert len(found.dangling) == 1
    assert "problems" in found.dangling[0]


def test_a_failed_upgrade_leaves_the_database_as_it_was(
    url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = (
        f'import sqlalchemy as sa\nfrom alembic import op\nrevision = "{NEXT}"\n'
        f'down_revision = "{HEAD}"\ndef upgrade():\n'
        '    op.create_table("half", sa.Column("id", sa.Integer))\n    raise OSError("power")\n'
    )
    (tmp_path / f"v{NEXT}_half.py").write_text(source)
    settings = migrate.config()
    versions = f"{migrate.MIGRATIONS / 'versions'}:{tmp_path}"
    settings.set_main_option("version_locations", versions)
    monkeypatch.setattr(migrate, "config", lambda: settings)
    monkeypatch.setattr(schema, "HEAD", NEXT)
    with pytest.raises(OSError, match="power"):
        migrate.upgrade(url)
    monkeypatch.undo()
    assert migrate.current(url) == HEAD
    assert migrate.check(url).ok


def test_a_drafted_migration_holds_what_the_models_lack_and_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    grown = MetaData(naming_convention=models.METADATA.naming_convention)
    for table in models.METADATA.tables.values():
        table.to_metadata(grown)
    grown.tables["runs"].append_column(Column("note", Text))
    monkeypatch.setattr(models, "METADATA", grown)
    script = migrate.draft("Add a note to runs", tmp_path)
    assert script == tmp_path / f"v{NEXT}_add_a_note_to_runs.py"
    assert f"down_revision = '{HEAD}'" in script.read_text()

    settings = migrate.config()
    versions = f"{migrate.MIGRATIONS / 'versions'}:{tmp_path}"
    settings.set_main_option("version_locations", versions)
    monkeypatch.setattr(migrate, "config", lambda: settings)
    monkeypatch.setattr(health, "METADATA", grown)
    for module in (schema, migrate):
        monkeypatch.setattr(module, "HEAD", NEXT)
    path = str(tmp_path / "plans.db")
    assert migrate.upgrade(path) == NEXT
    assert migrate.check(path).ok


@pytest.mark.parametrize("stored", sorted(DATA.glob("schema_*.db")), ids=lambda p: p.stem)
def test_every_released_schema_upgrades_without_loss(stored: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(stored, tmp_path / "plans.db"))
    assert migrate.current(str(path)) == stored.stem.removeprefix("schema_")
    migrate.upgrade(str(path))
    found = migrate.check(str(path))
    assert found.ok, found
    with PlanStore.open(path) as store:
        (plan,) = store.list_plans(name="kept")
        found = store.get_plan(plan.id)
        expected = plan_record(
            "kept", objective_us=44_000_000, id=plan.id, created_at=plan.created_at
        )
        assert found == expected
        assert store.find_plan(found.fingerprint) == found
        (run_found,) = store.list_runs(plan=plan.id)
        report = store.get_run(run_found.id).report
        assert report == run_record("").report
        assert store.measurements() == (measurement(), measurement(degree=4, source="replay"))


def test_there_is_a_stored_file_for_every_schema() -> None:
    stored = {path.stem.removeprefix("schema_") for path in DATA.glob("schema_*.db")}
    assert stored == set(migrate.known_revisions())
