"""Layers of settings: which file is read, which value wins, and what is refused."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.settings_files import (
    project_file,
    read_settings,
    refuse_unknown_tables,
    setting,
    user_file,
)


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.delenv("ARACHNE_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_project_overrules_the_user_and_a_nearer_table_one_around_it(home):
    write(user_file(), "db = 'user.db'\n[solve]\ntime-limit = 1\nseed = 7\n")
    write(home / "work" / "arachne.toml", "db = 'own.db'\n[solve.cascade]\ntime-limit = 2\n")
    files = read_settings(home / "work")
    assert [file.layer for file in files] == ["user", "project"]
    path = ("solve", "cascade")
    assert setting(files, path, ("time-limit",)).value == 2
    assert setting(files, ("solve", "pipeline"), ("time-limit",)).value == 1
    assert setting(files, path, ("seed",)).value == 7
    assert setting(files, path, ("db",)).value == "own.db"
    assert setting(files, path, ("gap",)) is None
    found = setting(files, path, ("time-limit",))
    assert found.where == f"{home / 'work' / 'arachne.toml'}: [solve.cascade] time-limit"


def test_the_project_is_found_from_below_but_not_past_a_repository(home):
    write(home / "arachne.toml", "")
    inner = home / "repository" / "src"
    inner.mkdir(parents=True)
    assert project_file(inner) == home / "arachne.toml"
    (home / "repository" / ".git").mkdir()
    assert project_file(inner) is None


def test_a_named_file_takes_the_place_of_both(home, monkeypatch):
    write(home / "arachne.toml", "db = 'project.db'")
    monkeypatch.setenv("ARACHNE_CONFIG", str(write(home / "mine.toml", "db = 'named.db'")))
    assert setting(read_settings(home), (), ("db",)).value == "named.db"
    monkeypatch.setenv("ARACHNE_CONFIG", "")
    assert read_settings(home) == ()
    monkeypatch.setenv("ARACHNE_CONFIG", str(home / "none.toml"))
    with pytest.raises(InputError, match=r"none\.toml.*No such file.*try ARACHNE_CONFIG="):
        read_settings(home)


@pytest.mark.parametrize(
    ("text", "line"), [("db = ", 1), ("a = 1\n[solve\nb = 2", 2), ("a = 1\na = 2", 2)]
)
def test_broken_toml_names_its_line(home, text, line):
    path = write(home / "arachne.toml", text)
    with pytest.raises(InputError) as raised:
        read_settings(home)
    assert raised.value.where == f"{path}:{line}"


def test_a_table_of_no_command_is_refused_with_a_guess(home):
    write(home / "arachne.toml", "[slove]\nseed = 1")
    with pytest.raises(InputError, match=r"did you mean 'solve'"):
        refuse_unknown_tables(read_settings(home), {"solve", "train"})
