"""What can go wrong with a database, each told in a user's words."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from arachne_opt.db import engine, migrate
from arachne_opt.db.failures import should_retry, translate
from arachne_opt.db.location import locate
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import MissingDependencyError, StoreError
from tests.db.builders import fingerprint, plan_record
from tests.db.workers import finish, start

Mount = Callable[[str], Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """Mounts a small disk in memory, with the options that are given."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def attach(options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a disk needs root")
        return folder

    yield attach
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that other users may enter; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_a_full_disk_keeps_the_plan_out_whole(mount: Mount) -> None:
    path = mount("size=1m") / "plans.db"
    with PlanStore.open(path) as store:
        kept = store.add_plan(plan_record("kept"))
        with pytest.raises(StoreError, match="the disk is full; nothing of this write is stored"):
            store.add_plan(plan_record("large", cascades=20_000))
        assert store.find_plan(fingerprint("large")) is None
        assert store.find_plan(kept.fingerprint) == kept
        assert store.add_plan(plan_record("small")).id
    assert migrate.check(str(path)).ok


def test_a_disk_too_small_for_the_tables_is_told_and_may_grow(mount: Mount) -> None:
    path = mount("size=100k") / "plans.db"
    with pytest.raises(StoreError, match="the disk is full"):
        PlanStore.open(path)
    subprocess.run(["mount", "-o", "remount,size=2m", str(path.parent)], check=True)
    with PlanStore.open(path) as store:
        assert store.list_plans() == ()
    assert migrate.check(str(path)).ok


def test_a_limit_on_file_sizes_keeps_the_plan_out_whole(sqlite_file: Path) -> None:
    (output,) = finish(start("store_with_small_files", sqlite_file, 2**18))
    assert "the disk refused a read or a write" in output
    with PlanStore.open(sqlite_file) as store:
        assert store.list_plans() == ()
    assert migrate.check(str(sqlite_file)).ok


def test_a_read_only_disk_can_be_read_and_says_so_when_written(
    mount: Mount, sqlite_file: Path
) -> None:
    folder = mount("size=2m")
    path = Path(shutil.copy(sqlite_file, folder))
    with PlanStore.open(path) as store:
        plan = store.add_plan(plan_record())
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    with pytest.raises(StoreError, match="the database is read-only; try another database"):
        PlanStore.open(path)
    with PlanStore.open(path, read_only=True) as store:
        assert store.find_plan(plan.fingerprint) == plan


def test_a_user_without_rights_reads_a_file_in_a_folder_that_is_closed_to_him(
    public_folder: Path, sqlite_file: Path
) -> None:
    path = Path(shutil.copy(sqlite_file, public_folder))
    with PlanStore.open(path) as store:
        store.add_plan(plan_record())
    shutil.rmtree(path.with_name("plans.db.locks"), ignore_errors=True)
    path.chmod(0o444)
    public_folder.chmod(0o555)
    (output,) = finish(start("look_without_rights", path))
    refused, read = output.splitlines()
    assert "the database is read-only" in refused
    assert read == "1 plans"


def test_a_user_without_rights_reads_while_a_writer_is_at_work(
    public_folder: Path, sqlite_file: Path
) -> None:
    path = Path(shutil.copy(sqlite_file, public_folder))
    path.chmod(0o644)
    # An open connection keeps the log of the writer from being folded into the file.
    witness = sqlite3.connect(path)
    witness.execute("SELECT count(*) FROM plans").fetchall()
    with PlanStore.open(path) as store:
        store.add_plan(plan_record())
    assert path.with_name("plans.db-wal").stat().st_size > 0
    (output,) = finish(start("look_without_rights", path))
    witness.close()
    assert output.splitlines()[1] == "1 plans"


def test_a_user_without_rights_is_told_what_he_may_not(
    public_folder: Path, sqlite_file: Path
) -> None:
    path = Path(shutil.copy(sqlite_file, public_folder))
    path.chmod(0o000)
    (output,) = finish(start("look_without_rights", path))
    assert output.count("no permission to read the database") == 2
    path.chmod(0o666)
    (output,) = finish(start("look_without_rights", path))
    assert "is read-only, and SQLite writes files beside the database" in output
    (output,) = finish(start("look_without_rights", public_folder / "new.db"))
    assert "is read-only, and SQLite writes files beside the database" in output
    assert "there is no database" in output


def test_wrong_places_are_named(tmp_path: Path, sqlite_file: Path) -> None:
    cases = {
        tmp_path / "nowhere" / "plans.db": "nowhere does not exist",
        sqlite_file / "plans.db": "is not a folder",
        tmp_path: "this is a folder, not a database file",
    }
    for path, what in cases.items():
        for read_only in (False, True):
            with pytest.raises(StoreError, match=what):
                PlanStore.open(path, read_only=read_only)
    with pytest.raises(StoreError, match="there is no database"):
        PlanStore.open(tmp_path / "missing.db", read_only=True)
    assert not (tmp_path / "missing.db").exists()
    with pytest.raises(StoreError, match="there is no database"):
        migrate.check(str(tmp_path / "missing.db"))


@pytest.mark.parametrize("content", [b"id,path\n1,a.mp4\n" * 100, b"x", b"\0" * 4096])
def test_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "clips.csv"
    path.write_bytes(content)
    for attempt in (PlanStore.open, migrate.upgrade, migrate.check, migrate.current):
        with pytest.raises(StoreError, match="this file is no database"):
            attempt(str(path))
    assert path.read_bytes() == content


def test_a_damaged_file_is_told(sqlite_file: Path) -> None:
    with PlanStore.open(sqlite_file) as store:
        for i in range(30):
            store.add_plan(plan_record(f"p{i}", cascades=50))
        tables = store.database.read(lambda c: c.execute(text("PRAGMA page_count")).scalar())
    with sqlite_file.open("r+b") as file:
        for page in range(tables - 30, tables):
            file.seek(page * 4096)
            file.write(b"\xff" * 4096)
    assert migrate.check(str(sqlite_file)).damage
    with PlanStore.open(sqlite_file) as store, pytest.raises(StoreError, match="damaged"):
        tuple(store.find_plan(fingerprint(f"p{i}")) for i in range(30))


def test_a_database_that_vanishes_is_told(sqlite_file: Path) -> None:
    with PlanStore.open(sqlite_file) as store:
        sqlite_file.unlink()
        with pytest.raises(StoreError, match="cannot be opened"):
            store.find_plan(fingerprint("p"))


def test_a_lock_that_does_not_end_is_told(
    sqlite_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "WAIT_S", 0.1)
    holder = sqlite3.connect(sqlite_file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with PlanStore.open(sqlite_file) as store:
        assert store.list_plans() == ()
        with pytest.raises(StoreError, match="another process keeps the database locked"):
            store.add_plan(plan_record())
        holder.rollback()
        holder.close()
        assert store.add_plan(plan_record()).id


def test_an_error_of_the_database_shows_no_payload(sqlite_file: Path) -> None:
    with PlanStore.open(sqlite_file) as store:
        store.database.write(lambda c: c.execute(text("DROP TABLE plan_payloads")) and None)
        with pytest.raises(StoreError) as caught:
            store.add_plan(plan_record(plan={"x": "confidential"}))
    assert "confidential" not in str(caught.value) + str(caught.value.__cause__)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"arachne-opt\[postgres\]"):
        PlanStore.open("postgresql://h/d")


def test_a_server_that_is_not_there_is_told_without_the_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="server cannot be reached") as caught:
        PlanStore.open("postgresql://ann:geheim@127.0.0.1:1/plans")
    error: BaseException | None = caught.value
    while error is not None:
        assert "geheim" not in f"{error} {error!r}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("DiskFull", "disk is full"),
        ("ReadOnlySqlTransaction", "is read-only"),
        ("InsufficientPrivilege", "may not do that"),
        ("InvalidPassword", "cannot be reached"),
        ("AdminShutdown", "cannot be reached"),
        ("NumericValueOutOfRange", "cannot be stored"),
        ("SyntaxError", "refused"),
    ],
)
def test_states_of_the_server_have_words(name: str, what: str) -> None:
    errors = pytest.importorskip("psycopg.errors")
    error = OperationalError("SELECT", {}, getattr(errors, name)("detail geheim"))
    told = str(translate(error, locate("postgresql://ann:geheim@h/d")))
    assert what in told
    assert "geheim" not in told
    assert not should_retry(error)


@pytest.mark.postgres
def test_a_server_that_drops_its_connections_is_used_again(postgres_url: str) -> None:
    migrate.upgrade(postgres_url)
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid"
    with PlanStore.open(postgres_url) as store, PlanStore.open(postgres_url) as other:
        me = text("SELECT pg_backend_pid()")
        pid = store.database.read(lambda c: c.execute(me).scalar())
        other.database.read(lambda c: c.execute(text(kill), {"pid": pid}) and None)
        assert store.add_plan(plan_record()).id


def test_a_store_may_be_used_on_both_sides_of_a_fork(url: str) -> None:
    (output,) = finish(start("use_after_fork", url))
    assert output == "41 plans\n"
