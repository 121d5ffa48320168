"""Addresses of databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from arachne_opt.db.location import locate
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError
from arachne_opt.settings import default_database


def test_a_plain_path_and_an_sqlite_url_mean_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "plans.db"
    addresses = ("plans.db", "./plans.db", "~/plans.db", path, f"sqlite:///{path}")
    assert {locate(a).path for a in addresses} == {path}
    assert locate("sqlite:///plans.db").path == path


@pytest.mark.parametrize("name", ["a b.db", "100%25.db", "what?mode=ro.db", "#.db", "影片.db"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    with PlanStore.open(tmp_path / name):
        pass
    assert (tmp_path / name).is_file()
    with PlanStore.open(tmp_path / name, read_only=True) as store:
        assert store.list_plans() == ()


def test_the_default_is_in_the_xdg_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_database() == "/data/arachne/plans.db"
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_DATA_HOME", ignored)
        monkeypatch.setenv("HOME", "/home/a")
        assert default_database() == "/home/a/.local/share/arachne/plans.db"


def test_the_default_needs_no_set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "deep" / "down"))
    with PlanStore.open(default_database()) as store:
        assert store.list_plans() == ()
    assert Path(default_database()).is_file()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "  ",
        "a\0b",
        "sqlite://",
        "sqlite:///:memory:",
        ":memory:",
        "file:x.db?mode=ro",
        "sqlite:///x.db?mode=ro",
        "mysql://u:geheim@h/d",
        "postgresql+psycopg2://u:geheim@h/d",
        "postgresql://u:geheim@h:port/d",
        "http://u:geheim@h/d",
        "://geheim",
    ],
)
def test_another_address_is_refused_without_its_password(address: str) -> None:
    with pytest.raises(InputError) as caught:
        locate(address)
    assert "geheim" not in str(caught.value)
    assert caught.value.hint
    assert "plans.db" in caught.value.hint


@pytest.mark.parametrize("kind", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_label_of_a_server_has_no_secrets(kind: str) -> None:
    location = locate(f"{kind}://ann:geheim@db.example:5433/plans?password=geheim&sslmode=require")
    assert location.label == "postgresql://ann:***@db.example:5433/plans"
    assert location.hide_secrets("wrong password geheim") == "wrong password ***"
    assert "geheim" not in repr(location)
