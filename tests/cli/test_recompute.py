"""Activations computed again where a plan chooses so, from prices to the report of a training."""

import json

import pytest

# Four clips together, and one alone.
CLIPS = "id,path,caption,num_frames,height,width,fps\n" + "".join(
    f"{name},,a cat,{'5,64,64' if name == 'e' else '9,96,96'},16\n" for name in "abcde"
)
# Little enough that the four do not fit with their activations kept.
CLUSTER = """format = "arachne.cluster/1"
name = "small"
[[node]]
name = "n"
count = 1
device_type = "CPU"
devices = 2
memory = "6500 KiB"
"""
LARGEST = "4x9x96x96"


@pytest.fixture
def options(tmp_path):
    manifest = tmp_path / "clips.csv"
    manifest.write_text(CLIPS)
    cluster = tmp_path / "small.toml"
    cluster.write_text(CLUSTER)
    few = ("--workload", manifest, "--batch", "4", "--cluster", cluster)
    return (*few, "--degrees", "1", "--time-limit", "0.5")  # no wider degree helps out


def recomputed(problem, plan):
    labels = [cascade["label"] for cascade in problem["cascades"]]
    return {labels[run["task"]] for run in plan["runs"] if run.get("recompute")}


def test_only_what_does_not_fit_otherwise_is_planned_to_be_computed_again(
    arachne, options, tmp_path
):
    solve = ("solve", "cascade", *options, "--model", "toy", "--out", tmp_path / "plans.jsonl")
    code, _, err = arachne(*solve, "--recompute", "never")
    assert code == 3
    assert "denoise fits at no degree" in err
    assert arachne(*solve, "--recompute", "planned")[0] == 0
    plan = json.loads((tmp_path / "plans.jsonl").read_text())
    assert plan["format"] == "arachne.cascade-plan/2"
    (stored,) = json.loads(arachne("plans", "list", "--format", "json")[1])["plans"]
    shown = json.loads(arachne("plans", "show", stored["id"], "--format", "json")[1])
    assert recomputed(shown["problem"], plan) == {LARGEST}
    # A second request is answered from the database, and simulated.
    code, out, _ = arachne(*solve, "--recompute", "planned", "--format", "json")
    assert code == 0
    assert json.loads(out)["plans"][0]["cached"] is True
    assert arachne("simulate", stored["id"])[0] == 0


def test_a_table_that_knows_one_way_only_says_how_to_get_the_other(arachne, options, tmp_path):
    row = {"task": "denoise", "device_type": "CPU", "degree": 1, "batch": 4, "frames": 9}
    row |= {"height": 96, "width": 96, "duration_us": 1000}
    table = {"format": "arachne.cost-table/1", "model": "toy", "rows": [row]}
    (tmp_path / "costs.json").write_text(json.dumps(table))
    costs = ("--costs", tmp_path / "costs.json")
    code, _, err = arachne("solve", "cascade", *options, *costs, "--recompute", "planned")
    assert code == 2
    assert "try arachne profile cascade --recompute planned" in err


@pytest.mark.slow
def test_a_training_follows_the_choice(arachne, options, tmp_path):
    files = ("--report", tmp_path / "report.json", "--tensorboard", tmp_path / "events")
    train = ("train", *options, "--model", "toy", "--recompute", "planned", *files)
    assert arachne(*train)[0] == 0
    (step,) = json.loads((tmp_path / "report.json").read_text())["iterations"]
    assert [task["clips"] for task in step["tasks"] if task["recompute"]] == [4]
    assert len(list((tmp_path / "events").iterdir())) == 1


@pytest.mark.slow
def test_both_ways_are_measured_for_a_plan_to_choose(arachne, manifest, tmp_path):
    out = tmp_path / "costs.json"
    shapes = ("--workload", manifest, "--iterations", "0", "--model", "toy")
    code, table, _ = arachne(
        "profile", "cascade", *shapes, "--recompute", "planned", "--degrees", "1", "--out", out
    )
    assert code == 0
    assert "denoise, recomputed" in table
    rows = json.loads(out.read_text())["rows"]
    by_way = {
        again: {
            (r["frames"], r["height"]): r["memory_bytes"]
            for r in rows
            if r["task"] == "denoise" and r.get("recompute", False) is again
        }
        for again in (False, True)
    }
    assert by_way[False].keys() == by_way[True].keys()
    assert all(by_way[True][key] < size for key, size in by_way[False].items())
