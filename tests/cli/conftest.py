"""Fixtures for tests of the command line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from arachne_opt.cli.main import run

Run = Callable[..., tuple[int, str, str]]

MANIFEST = """id,path,caption,num_frames,height,width,fps
a,,a red kite over the sea,33,128,128,16
b,,a dog,17,128,128,16
c,,snow falls,17,64,64,16
d,,a long train crosses a bridge at dusk,49,128,128,16
e,,still water,1,128,128,16
f,,two cats,17,64,64,16
"""


@pytest.fixture
def arachne(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command line in an empty folder with its own database: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARACHNE_DB", str(tmp_path / "plans.db"))

    def call(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Six clips of five shapes."""
    path = tmp_path / "clips.csv"
    path.write_text(MANIFEST, encoding="utf-8")
    return path
