"""Settings as commands see them; config, init and completion."""

import json
import subprocess
import tomllib

import pytest

from arachne_opt.cli.main import run


@pytest.fixture
def project(monkeypatch, tmp_path):
    for name in ("ARACHNE_CONFIG", "ARACHNE_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_force(capsys, *more):
    assert run(["config", "show", "--format", "json", *more]) == 0
    rows = json.loads(capsys.readouterr().out)["settings"]
    return {(row["command"], row["option"]): (row["value"], row["origin"]) for row in rows}


def test_flags_overrule_the_environment_the_environment_files_and_files_defaults(
    project, monkeypatch, capsys
):
    (project / "arachne.toml").write_text("db = 'file.db'\n")
    assert run(["db", "upgrade"]) == 0
    assert (project / "file.db").exists()
    monkeypatch.setenv("ARACHNE_DB", "variable.db")
    assert run(["db", "upgrade"]) == 0
    assert (project / "variable.db").exists()
    assert run(["db", "upgrade", "--db", "flag.db"]) == 0
    assert (project / "flag.db").exists()


def test_config_shows_every_value_with_its_origin(project, monkeypatch, capsys):
    (project / "arachne.toml").write_text("[solve]\nseed = 3\n[solve.cascade]\nworkers = 5\n")
    monkeypatch.setenv("ARACHNE_SOLVE_CASCADE_GAP", "0.1")
    rows = in_force(capsys)
    file = project / "arachne.toml"
    assert rows["solve cascade", "--workers"] == (5, f"project: {file}: [solve.cascade] workers")
    assert rows["solve pipeline", "--seed"] == (3, f"project: {file}: [solve] seed")
    assert rows["solve cascade", "--gap"] == ("0.1", "environment: ARACHNE_SOLVE_CASCADE_GAP")
    assert ("solve pipeline", "--workers") not in rows
    assert in_force(capsys, "--all")["solve pipeline", "--workers"][1] == "default"
    assert run(["config", "show", "--origin"]) == 0
    assert "[solve] seed" in capsys.readouterr().out


def test_passwords_are_never_shown(project, capsys):
    (project / "arachne.toml").write_text("db = 'postgresql://planner:s3cret@pool/plans'\n")
    for form in ("table", "json"):
        assert run(["config", "show", "--origin", "--format", form]) == 0
        out = capsys.readouterr().out
        assert "s3cret" not in out
        assert "planner:***@pool" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[solve.cascade]\ntime-limt = 3", "[solve.cascade] time-limt: no option of arachne solve"),
        ("[solve.cascade]\nworkers = 'many'", "[solve.cascade] workers: 'many' is not"),
        ("[solve.cascade]\nworkers = 0", "[solve.cascade] workers: 0 is not in the range"),
        ("[solve.cascade]\nonly = 'a'", "[solve.cascade] only: --only needs a list"),
        ("[solve]\ncascade = 3", "solve.cascade: 3 stands where the settings of a command belong"),
        ("tme-limit = 3", "did you mean 'time-limit'?"),
        ("[trian]\nlr = 3", "did you mean 'train'?"),
    ],
)
def test_a_wrong_setting_is_named_with_file_table_and_key(project, capsys, text, message):
    (project / "arachne.toml").write_text(text)
    assert run(["config", "show"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "arachne.toml" in error


def test_init_writes_settings_that_all_commands_take(project, capsys):
    assert run(["init"]) == 0
    text = (project / "arachne.toml").read_text()
    assert tomllib.loads(text)["solve"]["time-limit"] == 10
    assert max(map(len, text.splitlines())) <= 100
    # What is commented out is good too.
    keys = [line[2:] for line in text.splitlines() if line.startswith("# ") and " = " in line]
    for line in keys:
        tomllib.loads(line)
    assert len(keys) >= 3
    capsys.readouterr()
    assert in_force(capsys)["solve cascade", "--time-limit"][0] == 10
    assert run(["init"]) == 2
    assert "--force" in capsys.readouterr().err
    assert run(["init", "--force"]) == 0


def test_config_path_names_the_files(project, capsys):
    assert run(["config", "path", "--format", "json"]) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    assert [(file["layer"], file["state"]) for file in files] == [
        ("user", "not there"),
        ("project", "not there"),
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_back(project, capsys, shell):
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_ARACHNE_COMPLETE" in script
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def test_an_unknown_shell_is_refused(project, capsys):
    assert run(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
