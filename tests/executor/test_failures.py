"""The launcher shows the cause of a failure, not its echo on other ranks."""

import json
import time

import pytest

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.failures import failure_of, write_failure
from arachne_opt.executor.watchdog import Watchdog

TORCHRUN = """
Failures:
[1]:
  time      : 2026-01-01_00:00:00
  host      : here
  rank      : 0 (local_rank: 0)
  exitcode  : 8 (pid: 40)
[2]:
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 42)
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : here
  rank      : 2 (local_rank: 2)
  exitcode  : -9 (pid: 41)
"""


def test_the_first_cause_wins_over_lost_connections(tmp_path):
    report = tmp_path / "report.json"
    write_failure(report, 0, RuntimeError("Connection closed by peer [127.0.0.1]:4"))
    write_failure(report, 1, InputError("no frames", where="clip x", hint="another"))
    error = failure_of(report, "", 1)
    assert isinstance(error, InputError)
    assert str(error) == "rank 1, clip x: no frames; try another"


def test_a_rank_that_died_in_silence_is_named_from_torchruns_words(tmp_path):
    report = tmp_path / "report.json"
    write_failure(report, 0, RuntimeError("Connection reset by peer"))
    error = failure_of(report, TORCHRUN, 1)
    assert isinstance(error, RunError)
    assert str(error) == "rank 2: the process ended with code -9"


def test_an_unforeseen_error_shows_its_last_lines(tmp_path):
    report = tmp_path / "report.json"
    try:
        {}["key"]
    except KeyError as error:
        write_failure(report, 3, error)
    assert "KeyError: 'key'" in str(failure_of(report, "", 1))
    assert json.loads((tmp_path / "report.json.error.3").read_text())["rank"] == 3


def test_without_any_word_from_the_ranks_torchruns_last_lines_are_shown(tmp_path):
    assert "no port" in str(failure_of(tmp_path / "report.json", "start\nno port\n", 1))


def test_a_failing_task_is_named_with_its_rank():
    wanted = pytest.raises(RunError, match="rank 3: denoise of b failed: out of memory")
    with wanted, Watchdog(3).task("denoise of b", 1.0):
        raise RuntimeError("out of memory")


def test_a_hanging_task_is_reported_while_it_hangs(monkeypatch):
    monkeypatch.setattr("arachne_opt.executor.watchdog._GRACE_S", 0.0)
    monkeypatch.setattr("arachne_opt.executor.watchdog._LOOK_EVERY_S", 0.01)
    errors = []
    with Watchdog(1, errors.append).task("encode of a", 0.05):
        deadline = time.monotonic() + 5
        while not errors and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "rank 1: encode of a is not done" in str(errors[0])


def test_tasks_in_time_are_not_reported(monkeypatch):
    monkeypatch.setattr("arachne_opt.executor.watchdog._GRACE_S", 0.05)
    monkeypatch.setattr("arachne_opt.executor.watchdog._LOOK_EVERY_S", 0.01)
    errors = []
    dog = Watchdog(1, errors.append)
    for _ in range(3):
        with dog.task("encode of a", 0.1):
            time.sleep(0.02)
    time.sleep(0.2)
    assert errors == []
