"""``arachne plans`` and ``arachne simulate``."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def plan_id(arachne: Run, manifest: Path) -> str:
    source = ["--workload", manifest, "--cluster", "A100-80:4x2", "--model", "wan2.1-1.3b"]
    out = arachne("solve", "cascade", *source, "--time-limit", "1", "--format", "json")[1]
    return str(json.loads(out)["plans"][0]["id"])


def test_a_stored_plan_is_listed_and_shown(arachne: Run, plan_id: str) -> None:
    assert plan_id[:12] in arachne("plans", "list")[1]
    out = arachne("plans", "show", plan_id[:12])[1]
    assert "checker and simulator agree" in out
    assert "makespan" in out
    assert "of gradient synchronisation and optimizer" in out


def test_simulation_agrees_with_the_plan(arachne: Run, plan_id: str) -> None:
    code, out, _ = arachne("simulate", plan_id, "--format", "json")
    body = json.loads(out)["plans"][0]
    assert code == 0
    assert body["makespan_us"] == body["planned_us"]
    assert len(body["peak_bytes"]) == 8
    assert "peak memory" in arachne("simulate", plan_id)[1]
    assert body["iteration_us"] == body["makespan_us"] + body["tail_us"] > body["makespan_us"]
    assert 0 <= body["idle_share"] < 1


def test_a_trace_is_written(arachne: Run, plan_id: str, tmp_path: Path) -> None:
    code, out, _ = arachne("simulate", plan_id, "--trace", tmp_path / "t.json", "--width", 90)
    assert code == 0
    assert "encode" in out
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_exported_files_are_as_readable_as_any_other_and_leave_no_part(
    arachne: Run, plan_id: str, tmp_path: Path
) -> None:
    (tmp_path / "usual.txt").write_text("")
    out = tmp_path / "exported.jsonl"
    assert arachne("plans", "export", plan_id, "--out", out)[0] == 0
    assert out.stat().st_mode == (tmp_path / "usual.txt").stat().st_mode
    assert not list(tmp_path.glob(".exported*"))
    code, _, err = arachne("plans", "export", plan_id, "--out", tmp_path / "no" / "x.jsonl")
    assert code == 2
    assert "cannot write" in err


def test_an_unknown_plan_is_refused(arachne: Run, plan_id: str) -> None:
    assert plan_id
    code, _, err = arachne("plans", "show", "zzzz")
    assert code == 2
    assert "zzzz" in err


def test_a_plan_file_is_simulated_with_its_instances(
    arachne: Run, shared_data: Path, tmp_path: Path
) -> None:
    file = shared_data / "cascades" / "instances_wa16_16gpu.json"
    plans = tmp_path / "plans.jsonl"
    arachne("solve", "cascade", "--instances", file, "--time-limit", "0.5", "--out", plans)
    code, out, _ = arachne("simulate", plans, "--instances", file)
    assert code == 0
    assert "wa16_g16_it0" in out

    broken = json.loads(plans.read_text().splitlines()[0])
    broken["runs"][0]["end_s"] = broken["runs"][0]["start_s"] + 0.5
    plans.write_text(json.dumps(broken))
    code, _, err = arachne("simulate", plans, "--instances", file)
    assert code == 2
    assert "illegal" in err

    plans.write_text("{no json")
    code, _, err = arachne("simulate", plans, "--instances", file)
    assert code == 2
    assert "plans.jsonl:1" in err
