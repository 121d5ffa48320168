"""The doctor: all well, a database that is out of reach, a package that is missing."""

import importlib.metadata
import importlib.util
import json

import pytest

from arachne_opt.cli import doctor
from arachne_opt.cli.main import run


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("ARACHNE_DB", str(tmp_path / "plans.db"))


def findings(capsys, code):
    assert run(["doctor", "--format", "json"]) == code
    rows = json.loads(capsys.readouterr().out)["findings"]
    return {row["what"]: row for row in rows}


def test_a_sound_machine_has_no_failure(capsys):
    found = findings(capsys, 0)
    assert not [row for row in found.values() if row["state"] == "FAIL"]
    for what in ("CP-SAT", "HiGHS", "CBC"):
        assert "solves a small problem" in found[what]["found"]
    assert "0 plans" in found["database"]["found"]
    assert found["clock"]["state"] == "ok"
    assert run(["doctor"]) == 0
    assert "solves a small problem" in capsys.readouterr().out


def test_a_database_that_cannot_be_opened_is_exit_6_and_all_else_is_still_looked_at(
    capsys, monkeypatch, tmp_path
):
    (tmp_path / "plans.db").write_bytes(b"no database at all, only bytes" * 100)
    found = findings(capsys, 6)
    assert found["database"]["state"] == "FAIL"
    assert found["data folder"]["state"] == "ok"


def test_a_solver_that_fails_is_exit_7(capsys, monkeypatch):
    def broken():
        raise ImportError("libhighs.so.1: version not found")

    monkeypatch.setattr(doctor, "_highs", broken)
    found = findings(capsys, 7)
    assert "libhighs" in found["HiGHS"]["found"]
    assert found["CBC"]["state"] == "ok"


def test_a_solver_that_answers_wrongly_is_found_out(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_cbc", lambda: 3.0)
    assert "where 2 is right" in findings(capsys, 7)["CBC"]["found"]


def test_missing_extras_are_notes_with_the_command_and_missing_packages_failures(
    capsys, monkeypatch
):
    find, version = importlib.util.find_spec, importlib.metadata.version
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "av" else find(name, *a)
    )

    def no_pulp(name):
        if name == "pulp":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(doctor, "version", no_pulp)
    found = findings(capsys, 7)
    assert found["av"]["state"] == "note"
    assert "arachne-opt[decode]" in found["av"]["hint"]
    assert found["pulp"]["state"] == "FAIL"


def test_searches_without_the_compiled_library_are_a_note(capsys, monkeypatch):
    from arachne_opt.solvers.cascade.walks import native

    monkeypatch.setattr(native, "library", lambda: None)
    row = findings(capsys, 0)["walks"]
    assert row["state"] == "note"
    assert "C compiler" in row["hint"]
