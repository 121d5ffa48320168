"""Databases for tests: a fresh one for each, of both kinds."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from arachne_opt.db import migrate
from arachne_opt.db.store import PlanStore

SERVER = os.environ.get("ARACHNE_TEST_POSTGRES")

# Without a server one test says so, instead of each one.
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)] if SERVER else ["sqlite"]


@pytest.fixture(scope="session")
def made_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite database at head; copying it is faster than making one."""
    path = tmp_path_factory.mktemp("template") / "plans.db"
    migrate.upgrade(str(path))
    return path


@pytest.fixture
def sqlite_file(made_file: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made_file, tmp_path / "plans.db"))


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A PostgreSQL schema of its own, without tables."""
    if not SERVER:
        pytest.skip("ARACHNE_TEST_POSTGRES names no PostgreSQL server")
    psycopg = pytest.importorskip("psycopg")
    name = f"arachne_test_{secrets.token_hex(6)}"
    with psycopg.connect(SERVER, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        joint = "&" if "?" in SERVER else "?"
        yield f"{SERVER}{joint}options=-csearch_path%3D{name}"
        connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    """The address of a database at head, on each kind of server."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_file"))
    address = str(request.getfixturevalue("postgres_url"))
    migrate.upgrade(address)
    return address


@pytest.fixture
def store(url: str) -> Iterator[PlanStore]:
    with PlanStore.open(url) as opened:
        yield opened
