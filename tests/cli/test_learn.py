"""``arachne learn``, and the options that share work among processes."""

import json

import pytest

from arachne_opt.db.store import PlanStore
from arachne_opt.learning import generation, template_training
from arachne_opt.learning.examples import Example
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.solvers.base import Limits
from tests.pipeline_builders import small_problem

QUICK = Limits(time_limit_s=0.02, deterministic=True, workers=1)


@pytest.fixture
def planned(tmp_path, monkeypatch):
    monkeypatch.setattr(template_training, "_EPOCHS", 20)
    with PlanStore.open(tmp_path / "plans.db") as store:
        for seed in range(10):
            problem = small_problem(seed=seed, rows=4, batch=8)
            PipelineService(store, seeds=False).plan(problem, QUICK)
    return tmp_path / "plans.db"


def test_a_policy_is_refreshed_from_the_database_or_rejected(arachne, planned):
    code, out, _ = arachne("learn", "templates", "--from-db", "--format", "json")
    assert code == 0
    answer = json.loads(out)
    assert answer["format"] == "arachne.learn/1"
    with PlanStore.open(planned) as store:
        versions = [record.version for record in store.policies("templates")]
    assert versions == ([answer["version"]] if answer["accepted"] else [])
    code, out, _ = arachne("learn", "templates", "--from-db")
    assert code == 0
    assert "is kept" in out or "is rejected: it is no better than the one in use" in out


def test_too_few_plans_are_an_input_error(arachne):
    code, _, err = arachne("learn", "cascades", "--from-db")
    assert code == 2
    assert "0 plans are too few to learn from" in err


def test_examples_are_made_once(arachne, tmp_path, monkeypatch):
    made = []

    def fake(recipe, number):
        made.append(number)
        return Example(number=number, plan=None, objective_us=0, bound_us=0)

    monkeypatch.setattr(generation, "example", fake)
    file = tmp_path / "e.jsonl"
    for _ in range(2):
        code, out, err = arachne(
            "learn", "templates", "--count", 3, "--examples", file, "--only-examples"
        )
        assert (code, out) == (0, "")
        assert str(file) in err
    assert made == [0, 1, 2]


def test_jobs_and_dask_exclude_each_other(arachne):
    code, _, err = arachne("learn", "templates", "--jobs", 2, "--dask", "tcp://here:1")
    assert code == 2
    assert "--jobs and --dask exclude each other" in err


@pytest.mark.slow
def test_iterations_are_planned_in_several_processes(arachne, manifest):
    asked = ["solve", "cascade", "--workload", manifest, "--cluster", "H100-80:4x1"]
    asked += ["--model", "tiny-wan", "--iteration-size", 2, "--time-limit", 0.2]
    code, out, err = arachne(*asked, "--jobs", 2, "--format", "json")
    assert code == 0, err
    plans = json.loads(out)["plans"]
    assert len(plans) == 3
    assert [p["name"] for p in plans] == sorted(p["name"] for p in plans)
    code, out, _ = arachne(*asked, "--jobs", 2, "--format", "json")
    assert all(p["cached"] for p in json.loads(out)["plans"])
    code, _, err = arachne(*asked, "--jobs", 2, "--warm-start", "abc")
    assert code == 2
    assert "--warm-start goes with one process only" in err
