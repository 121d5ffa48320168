"""Backups, of and into every kind of database."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from arachne_opt.db import migrate
from arachne_opt.db.backup import backup, restore
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError, StoreError
from tests.db.builders import measurement, plan_record, run_record

DATA = Path(__file__).parent / "data"


def fill(store: PlanStore) -> list[str]:
    payload = {"z": "naïve – 影片 \u0001", "a": [0.1, -0.0, 1e-300, 2**53], "n": None}
    plans = [store.add_plan(plan_record(f"p{i}", plan=payload)) for i in range(3)]
    store.add_run(run_record(plans[0].id), [measurement(), measurement(degree=4)])
    store.add_plan(
        plan_record("bare", problem={"name": "no cluster"}, cluster_fingerprint="f" * 64)
    )
    return [plan.id for plan in plans]


def same(a: PlanStore, b: PlanStore) -> None:
    listed = a.list_plans()
    assert b.list_plans() == listed
    for plan in listed:
        assert b.get_plan(plan.id) == a.get_plan(plan.id)
    assert b.measurements() == a.measurements()
    assert [b.get_run(r.id) for r in b.list_runs()] == [a.get_run(r.id) for r in a.list_runs()]
    assert b.stats().rows == a.stats().rows


def test_a_backup_restores_to_the_same_into_a_file(store: PlanStore, tmp_path: Path) -> None:
    fill(store)
    url = str(store.database.location.path or store.database.location.url)
    if store.database.location.path is None:
        url = store.database.location.url.render_as_string(hide_password=False)
    copy, other = tmp_path / "copy.db", tmp_path / "other.db"
    assert backup(url, copy) == copy.stat().st_size > 10_000
    assert sorted(p.name for p in tmp_path.iterdir() if "copy" in p.name) == ["copy.db"]
    assert restore(str(other), copy) > 10
    assert migrate.check(str(other)).ok
    with PlanStore.open(other) as found:
        same(store, found)
        found.add_run(run_record(found.list_plans()[0].id), [measurement(degree=8)])


def test_a_backup_restores_into_every_kind(url: str, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    with PlanStore.open(source) as store:
        fill(store)
        backup(str(source), tmp_path / "copy.db")
        restore(url, tmp_path / "copy.db")
        assert migrate.check(url).ok
        with PlanStore.open(url) as found:
            same(store, found)
            # New rows get numbers of their own.
            found.add_run(run_record(found.list_plans()[0].id), [measurement(degree=8)])


def test_a_backup_of_an_older_schema_is_upgraded_on_the_way(url: str, tmp_path: Path) -> None:
    old = Path(shutil.copy(DATA / "schema_0001.db", tmp_path / "old.db"))
    before = old.read_bytes()
    copy = tmp_path / "copy.db"
    backup(str(old), copy)
    assert migrate.current(str(copy)) == "0001"
    restore(url, copy)
    with PlanStore.open(url) as store:
        assert len(store.list_plans(name="kept")) == 1
    assert old.read_bytes() == before


def test_only_an_empty_database_is_filled(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with PlanStore.open(url) as store:
        kept = store.add_plan(plan_record())
    with PlanStore.open(tmp_path / "other.db") as store:
        fill(store)
    backup(str(tmp_path / "other.db"), copy)
    with pytest.raises(InputError, match="not empty"):
        restore(url, copy)
    with PlanStore.open(url) as store:
        assert [p.id for p in store.list_plans()] == [kept.id]


def test_a_backup_never_overwrites_and_leaves_nothing_behind(
    sqlite_file: Path, tmp_path: Path
) -> None:
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    with pytest.raises(InputError, match="exists"):
        backup(str(sqlite_file), taken)
    assert taken.read_text() == "mine"
    with pytest.raises(InputError, match="no folder"):
        backup(str(sqlite_file), tmp_path / "nowhere" / "copy.db")
    with pytest.raises(StoreError, match="there is no database"):
        backup(str(tmp_path / "missing.db"), tmp_path / "copy.db")
    assert not [p for p in tmp_path.iterdir() if "copy" in p.name]


def test_a_backup_goes_on_while_others_write(sqlite_file: Path, tmp_path: Path) -> None:
    with PlanStore.open(sqlite_file) as store:
        fill(store)
        writer = sqlite3.connect(sqlite_file, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM runs")
        backup(str(sqlite_file), tmp_path / "copy.db")
        writer.rollback()
        writer.close()
    with PlanStore.open(tmp_path / "copy.db") as copy:
        assert len(copy.list_runs()) == 1


def test_what_is_no_backup_is_refused(sqlite_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "clips.csv"
    other.write_text("id,path\n" * 100)
    with pytest.raises(StoreError, match="no database"):
        restore(str(tmp_path / "new.db"), other)
    assert not (tmp_path / "new.db").exists()
