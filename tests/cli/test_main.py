"""The entry point: instant help, exit codes, errors for people."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from arachne_opt.cli import main
from arachne_opt.errors import (
    ArachneError,
    InfeasibleError,
    InputError,
    MissingDependencyError,
    NoPlanError,
    RunError,
    StoreError,
)

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("torch", "ortools", "sqlalchemy", "alembic", "pulp", "numpy", "highspy", "diffusers")


def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from arachne_opt.cli.main import run; code = run(['--help'])\n"
    code += f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr.strip() == "[]"
    assert "solve" in done.stdout


def test_every_command_of_the_table_answers_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in main.TABLE:
        assert main.run([name, "--help"]) == 0
        assert "Usage: arachne" in capsys.readouterr().out


def test_a_misspelt_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["slove"]) == 2
    assert "solve" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert "arachne, version" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArachneError("x"), 1),
        (InputError("x"), 2),
        (InfeasibleError("x"), 3),
        (NoPlanError("x"), 5),
        (StoreError("x"), 6),
        (MissingDependencyError("x"), 7),
        (RunError("x"), 8),
        (KeyboardInterrupt(), 130),
        (RuntimeError("x"), 1),
    ],
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> int:
        raise error

    monkeypatch.setattr(main.cli, "main", fail)
    assert main.run([]) == code


def test_an_error_says_where_what_and_what_to_try(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: object) -> int:
        raise InputError("frames is 0", where="clips.csv:7", hint="a frame count of at least 1")

    monkeypatch.setattr(main.cli, "main", fail)
    main.run([])
    expected = "error: clips.csv:7: frames is 0; try a frame count of at least 1\n"
    assert capsys.readouterr().err == expected


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command, obj=())
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from leaves(inner, (*path, name))


def test_every_command_has_an_example_and_every_option_its_help():
    found = dict(leaves(main.cli, ()))
    assert len(found) > 40
    for name, command in found.items():
        first = name.split()[0]
        assert f"arachne {first}" in (command.help or ""), name
        silent = [p.opts for p in command.params if isinstance(p, click.Option) and not p.help]
        assert not silent, name
