"""``arachne bench cascades``."""

import json
from pathlib import Path
from typing import Any

import pytest

from arachne_opt.cascade.plan import plan_from_json
from arachne_opt.cascade.verify import verify
from arachne_opt.importers.instances import read_instances
from tests.cli.conftest import Run


def instance(name: str, **published: float) -> dict[str, Any]:
    """Two tasks on eight devices: half of them each is best, 2 + 6 s."""
    task = {
        "shape": [1, 65, 1280, 720],
        "vae": [[1, 5.0, "exact"], [4, 2.0, "exact"]],
        "dit": [[4, 6.0, "exact"], [8, 5.0, "exact"]],
    }
    tasks = [{"id": number, **task} for number in range(2)]
    return {"id": name, "n_gpus": 8, "machine_size": 8, "tasks": tasks, "published": published}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [instance("a", genetic_1=10.0, genetic_plan_s=100.0), instance("b", megatron_lm=8.0)]
    text = json.dumps({"repo": "a/b", "instances": rows})
    (folder / "instances_x.json").write_text(text, encoding="utf-8")
    return folder


def test_ratios_gaps_and_the_curve_are_printed(arachne: Run, data: Path) -> None:
    code, out, err = arachne("bench", "cascades", "--data", data, "--time-limit", "1")
    assert (code, err) == (0, "")
    assert "2 instances, 1 s each" in out
    assert "genetic, written schedule     1           0.800" in out
    assert "Megatron-LM, no penalty paid  1           1.000" in out
    assert "in the end: mean 0.0 %" in out
    assert "Planning time where one is published (1)" in out


def test_json_carries_the_same_figures(arachne: Run, data: Path) -> None:
    code, out, _ = arachne("bench", "cascades", "--data", data, "--format", "json")
    value = json.loads(out)
    assert code == 0
    assert value["format"] == "arachne.bench-cascades/1"
    first, second = value["instances"]
    assert (first["id"], first["makespan_us"], first["gap"]) == ("a", 8_000_000, 0.0)
    assert first["rules_us"]["megatron-uniform"] == 8_000_000
    assert first["published_us"] == {"genetic": 10_000_000}
    assert first["history"][-1]["makespan_us"] == 8_000_000
    assert second["best_published_beaten_s"] is None
    assert value["summary"]["genetic, written schedule"]["wins"] == 1
    assert [m["elapsed_s"] for m in value["gap_over_time"]] == [0.1, 0.5, 1, 2, 5, 10]


def test_plans_are_written_and_legal(arachne: Run, data: Path, tmp_path: Path) -> None:
    out_file = tmp_path / "plans.jsonl"
    code, _, _ = arachne("bench", "cascades", "--data", data, "--only", "a", "--out", out_file)
    assert code == 0
    (line,) = out_file.read_text().splitlines()
    (found,) = read_instances(data, only="a")
    verify(found.problem, plan_from_json(json.loads(line), found.problem), 8_000_000)


def test_a_folder_without_instances_is_refused(arachne: Run, tmp_path: Path) -> None:
    code, out, err = arachne("bench", "cascades", "--data", tmp_path)
    assert (code, out) == (2, "")
    assert "no instances_*.json" in err


def test_an_unknown_solver_is_refused(arachne: Run, data: Path) -> None:
    code, _, err = arachne("bench", "cascades", "--data", data, "--solver", "portfolo")
    assert code == 2
    assert "try 'portfolio'" in err
