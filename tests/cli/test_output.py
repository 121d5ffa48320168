"""Files that are written whole, and what must stay what it is."""

import os
import stat
import threading
from pathlib import Path

import pytest

from arachne_opt.cli.output import write_whole
from arachne_opt.cli.session import PlanFile
from arachne_opt.errors import InputError


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(pipe: Path) -> None:
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_whole(pipe, "whole")
    reader.join(10)
    assert read == ["whole"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(pipe.parent) == ["pipe"]


def test_plans_go_into_a_pipe_too(pipe: Path) -> None:
    reader = threading.Thread(target=pipe.read_text, daemon=True)
    reader.start()
    with PlanFile(pipe):
        pass
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_file_keeps_its_content_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def full(_self: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]
