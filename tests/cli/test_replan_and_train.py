"""A cluster loses nodes: ``arachne replan``, then ``arachne train`` goes on under the new plan."""

import json
import shutil

import pytest

from arachne_opt.db.store import PlanStore
from arachne_opt.executor.pipeline.models.config_json import config_of_spec
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.settings import database_url
from arachne_opt.solvers.base import Limits
from tests.executor.pipeline.jobs import SPEC, mixed_plan, tiny_problem


@pytest.mark.slow
def test_a_training_of_four_ranks_goes_on_with_two(arachne, tmp_path):
    problem = tiny_problem("CPU=4")
    with PlanStore.open(database_url(None)) as store:
        old = PipelineService(store).keep_plan(problem, mixed_plan(problem), Limits()).record.id
    config = tmp_path / "tiny" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps(config_of_spec(SPEC, sequence_length=16)))
    kept = tmp_path / "kept"
    run = ("--model", config, "--device", "cpu", "--lr", "0.02", "--format", "json")
    run += ("--steps", 6, "--checkpoint-dir", kept, "--checkpoint-every", 3)
    code, out, err = arachne("train", "--plan", old, *run)
    assert code == 0, err
    whole = [step["loss"] for step in json.loads(out)["steps"]]

    folder = tmp_path / "next"
    replan = ("replan", "--plan", old, "--cluster", "CPU=2", "--format", "json")
    code, out, err = arachne(*replan, "--hand-to", folder)
    assert code == 0, err
    assert f"handed to {folder}" in err
    new = json.loads(out)["id"]
    shutil.rmtree(kept / "step-00000006")
    code, out, err = arachne("train", "--plan", new, *run, "--resume")
    assert code == 0, err
    report = json.loads(out)
    assert report["world_size"] == 2
    assert [step["loss"] for step in report["steps"]] == pytest.approx(whole[3:], abs=1e-6)

    # The four processes take the plan up by themselves, and two of them have no part in it.
    trace, saved = tmp_path / "trace.json", tmp_path / "saved"
    run = ("--model", config, "--device", "cpu", "--lr", "0.02", "--format", "json", "--steps", 6)
    run += ("--save", saved, "--checkpoint-dir", tmp_path / "others")
    code, out, err = arachne("train", "--plan", old, *run, "--moves", folder, "--trace", trace)
    assert code == 0, err
    report = json.loads(out)
    (move,) = report["moves"]
    assert (move["step"], move["plan_id"], move["world_size"]) == (0, new, 2)
    assert move["network_bytes"] + move["inside_bytes"] > 0
    assert [step["loss"] for step in report["steps"]] == pytest.approx(whole, rel=1e-5)
    assert (saved / "config.json").exists()
    with PlanStore.open(database_url(None)) as store:
        # Three of the training that was resumed, six of this one.
        assert [len(store.list_runs(plan=plan)) for plan in (old, new)] == [6, 9]
    tracks = json.loads(trace.read_text())["traceEvents"]
    assert len([e for e in tracks if e.get("cat") == "forward" and e["ph"] == "X"]) % 2 == 0
