"""``arachne solve pipeline`` and ``arachne bench pipelines`` on public data, and bad input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CLUSTER = "A100-40=8,V100-16=8"


@pytest.fixture
def profiles(shared_data: Path) -> Path:
    return shared_data / "pipelines" / "sailor"


@pytest.fixture
def scenarios(shared_folder: Path) -> Path:
    return shared_folder / "judges" / "scenarios_pipeline.json"


@pytest.fixture
def solve(arachne, profiles):
    """Plans OPT-350 on a cluster: (exit code, stdout, stderr)."""

    def call(cluster=CLUSTER, *more, model="OPT-350", batch=1024):
        return arachne(
            "solve", "pipeline", "--profiles", profiles, "--cluster", cluster,
            "--model", model, "--global-batch", batch, "--time-limit", 2, *more,
        )  # fmt: skip

    return call


def test_an_exported_plan_is_accepted_by_the_judge(solve, profiles, shared_folder, tmp_path):
    code, out, err = solve(CLUSTER, "--out", tmp_path / "plan.json", "--format", "json")
    assert code == 0, err
    told = json.loads(out)
    judge = shared_folder / "judges" / "judge_pipeline.py"
    done = subprocess.run(
        [
            sys.executable, judge, "--json", "--data", profiles, "--cluster", CLUSTER,
            "--gpus-per-node", "4", tmp_path / "plan.json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (judged,) = json.loads(done.stdout)
    assert judged["iteration_s"] == pytest.approx(told["iteration_s"], rel=1e-6)


def test_a_stored_plan_is_found_again(solve):
    solve()
    code, out, _ = solve(CLUSTER, "--format", "json")
    assert code == 0
    assert json.loads(out)["cached"]


def test_a_type_without_profile_names_those_that_have_one(solve):
    code, _, err = solve("A100-40=8,L4=8")
    assert code == 2
    assert "no profile for type L4" in err
    for name in ("A100-40", "V100-16", "GH-96"):
        assert name in err
    assert "try --allow-estimates" in err
    code, out, err = solve("A100-40=8,L4=8", "--allow-estimates")
    assert code == 0, err
    assert "iteration" in out


def test_a_model_that_fits_nowhere_is_infeasible_and_says_what_binds(solve):
    code, out, err = solve("V100-16=4", model="OPT-30")
    assert code == 3
    assert not out
    assert "no plan exists" in err
    assert "V100-16" in err or "rows" in err


def test_a_scenario_that_is_known_to_be_infeasible_says_how_much_is_short(
    arachne, profiles, scenarios
):
    code, _, err = arachne(
        "solve", "pipeline", "--profiles", profiles, "--scenario", f"{scenarios}:E2"
    )
    assert code == 3
    assert "GiB short" in err
    assert "row 11" in err


def test_a_plan_trains_exactly_a_batch_that_is_prime(solve):
    code, out, err = solve(CLUSTER, "--format", "json", batch=1021)
    assert code == 0, err
    pipelines = json.loads(out)["plan"]["pipelines"]
    batches = [p["microbatch"] * len(p["stages"][0]["replicas"]) for p in pipelines]
    assert sum(b * p["microbatches"] for b, p in zip(batches, pipelines, strict=True)) == 1021


def test_zones_without_a_link_are_refused(solve):
    code, _, err = solve("us-central1-a/A100-40=8,moon-1/V100-16=8")
    assert code == 2
    assert "no link from zone" in err
    assert "moon-1" in err


def test_a_cluster_file_is_read_and_its_mistakes_are_named(solve, tmp_path):
    file = tmp_path / "pool.toml"
    text = 'format = "arachne.cluster/1"\nname = "x"\n[[node]]\ndevice_type = "A100-40"\n'
    file.write_text(f"{text}devices = 4\ncount = -3\n")
    code, _, err = solve(file)
    assert code == 2
    assert "node 1: count: must be at least 1, not -3" in err


@pytest.mark.parametrize("pool", ["A100-40=-8", "A100-40=0,V100-16=8", "A100-40=8+-1"])
def test_counts_must_be_positive(solve, pool):
    code, _, err = solve(pool)
    assert code == 2
    assert "must be positive" in err


@pytest.mark.parametrize("pool", ["A100-40", "A100-40=x", "=8", ""])
def test_a_pool_that_cannot_be_read_is_shown_how(solve, pool):
    code, _, err = solve(pool)
    assert code == 2
    assert "A100-40=32,V100-16=96" in err


def test_an_unknown_model_names_the_known_ones(solve):
    code, _, err = solve(model="OPT-35")
    assert code == 2
    assert "OPT-350" in err


def test_something_to_plan_has_to_be_named(arachne, profiles):
    code, _, err = arachne("solve", "pipeline", "--profiles", profiles)
    assert code == 2
    assert "--scenario" in err


def test_a_scenario_without_events_is_no_trace(arachne, profiles, scenarios):
    code, _, err = arachne(
        "solve", "pipeline", "--profiles", profiles, "--trace", f"{scenarios}:D1"
    )
    assert code == 2
    assert "has no events" in err


def test_the_comparison_prints_rules_stored_figures_and_bounds(
    arachne, profiles, scenarios, tmp_path
):
    code, out, err = arachne(
        "bench", "pipelines", "--scenarios", scenarios, "--profiles", profiles, "--only", "D1",
        "--only", "E2", "--time-limit", 2, "--out", tmp_path / "plans.jsonl", "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    first, second = json.loads(out)["scenarios"]
    assert first["bound_s"] <= first["iteration_s"] < first["opponents_s"]["best known"]
    assert {"Sailor", "Metis", "metis-like", "best rule"} <= set(first["opponents_s"])
    assert second["iteration_s"] is None
    assert second["binding"]
    (line,) = (tmp_path / "plans.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["scenario"] == "D1"


def test_no_scenario_of_a_name_is_an_error(arachne, profiles, scenarios):
    code, _, err = arachne(
        "bench", "pipelines", "--scenarios", scenarios, "--profiles", profiles, "--only", "X*"
    )
    assert code == 2
    assert "no scenario matches X*" in err
