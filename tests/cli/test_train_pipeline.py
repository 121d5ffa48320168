"""``arachne train`` under a pipeline plan, from the outside."""

import json
from dataclasses import replace

import numpy as np
import pytest

from arachne_opt.db.store import PlanStore
from arachne_opt.executor.pipeline.job import job_from_json
from arachne_opt.executor.pipeline.models.config_json import config_of_spec
from arachne_opt.executor.pipeline.report import report_from_json
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.settings import database_url
from arachne_opt.solvers.base import Limits
from tests.executor.pipeline.jobs import SPEC, mixed_plan, tiny_problem, uniform_plan


@pytest.fixture
def stored(arachne):
    """Stores the mixed plan for a cluster and gives its id."""

    def keep(pool="CPU=4", *kinds, make=mixed_plan, **fields):
        problem = tiny_problem(pool, **fields)
        plan = make(problem, *kinds)
        with PlanStore.open(database_url(None)) as store:
            return PipelineService(store).keep_plan(problem, plan, Limits()).record.id

    return keep


@pytest.fixture
def config(tmp_path):
    """The tiny model as a config.json."""
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(config_of_spec(SPEC, sequence_length=16)))
    return path


def losses(out):
    return [step["loss"] for step in json.loads(out)["steps"]]


@pytest.mark.slow
def test_four_processes_train_stop_and_go_on_as_if_they_had_not(arachne, stored, config, tmp_path):
    plan = stored()
    run = ("train", "--plan", plan, "--model", config, "--device", "cpu", "--lr", "0.02")
    run += ("--format", "json", "--clip-norm", "1")
    trace, saved = tmp_path / "trace.json", tmp_path / "model"
    code, out, _ = arachne(*run, "--steps", 12, "--trace", trace, "--save", saved)
    assert code == 0
    whole = losses(out)
    assert whole[-1] < 0.9 * whole[0]
    check_trace(json.loads(trace.read_text()))
    check_database(plan)

    kept = ("--checkpoint-dir", tmp_path / "kept", "--checkpoint-every", 3)
    code, out, _ = arachne(*run, "--steps", 6, *kept)
    assert code == 0
    assert losses(out) == pytest.approx(whole[:6], abs=1e-6)
    code, _, err = arachne(*run, "--steps", 12, *kept)
    assert code == 2
    assert "holds checkpoints of a training; try --resume" in err
    code, out, err = arachne(*run, "--steps", 12, *kept, "--resume")
    assert code == 0
    assert "going on from step-00000006: 6 of 12 steps are done" in err
    assert losses(out) == pytest.approx(whole[6:], abs=1e-6)
    code, out, _ = arachne(*run, "--steps", 12, *kept, "--resume")
    assert (code, out) == (0, "")

    # What was saved is what transformers would read, and a training can begin with it.
    begun = ("train", "--plan", plan, "--checkpoint", saved, "--device", "cpu", "--steps", 1)
    code, out, _ = arachne(*begun, "--format", "json")
    assert code == 0
    assert losses(out)[0] < 0.9 * whole[0]


@pytest.mark.slow
def test_uniform_stages_are_run_by_torch_as_by_tables(arachne, stored, config, tmp_path):
    plan = stored(make=uniform_plan)
    run = ("train", "--plan", plan, "--model", config, "--device", "cpu", "--lr", "0.02")
    run += ("--format", "json", "--steps", 4)
    kept, trace = ("--checkpoint-dir", tmp_path / "kept"), tmp_path / "trace.json"
    whole = losses(arachne(*run)[1])
    torch = ("--engine", "torch", "--pipeline-schedule")
    code, out, err = arachne(*run, *kept, "--steps", 2, *torch, "gpipe")
    assert code == 0, err
    assert losses(out) == pytest.approx(whole[:2], rel=1e-6)
    more = ("--chunks", 2, "--resume", "--trace", trace)
    code, out, err = arachne(*run, *kept, *torch, "interleaved", *more)
    assert code == 0, err
    assert losses(out) == pytest.approx(whole[2:], rel=1e-6)
    stages = json.loads(out)["steps"][-1]["stages"]
    assert all(s["compute_us"] > 0 and s["wait_us"] > 0 and s["sync_us"] > 0 for s in stages)
    events = json.loads(trace.read_text())["traceEvents"]
    # Planned and measured: 4 ranks, 4 micro-batches, 2 chunks.
    forwards = [e for e in events if e.get("cat") == "forward" and e["ph"] == "X"]
    assert len(forwards) == 2 * 4 * 4 * 2


def check_trace(trace):
    """One trace with the planned timeline beside the measured one."""
    events = trace["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert {name.split()[0] for name in names} == {"planned", "measured"}
    forwards = [e for e in events if e.get("cat") == "forward" and e["ph"] == "X"]
    assert len(forwards) == 2 * 4 * 4  # twice, of 4 ranks, 4 micro-batches each
    assert any(e["name"] == "sums of gradients" for e in events)


def check_database(plan):
    """A run per step with the times of its stages, and measured forwards and backwards."""
    with PlanStore.open(database_url(None)) as store:
        runs = store.list_runs(plan=plan)
        assert len(runs) == 12
        newest, oldest = (report_from_json(store.get_run(runs[at].id).report) for at in (0, -1))
        samples = store.measurements(model="tiny")  # the folder of its config.json
    assert [step.step for report in (oldest, newest) for step in report.steps] == [0, 11]
    stages = newest.steps[0].stages
    assert [(s.pipeline, s.stage) for s in stages] == [(0, 0), (0, 1)]
    assert all(s.compute_us > 0 and s.sync_us > 0 and s.update_us > 0 for s in stages)
    assert {span.rank for span in newest.spans} == set(range(4))
    assert not oldest.spans
    tasks = {(s.task, s.degree, s.batch) for s in samples}
    assert ("forward of rows 0-1", 2, 2) in tasks
    assert ("backward of rows 2-5", 1, 1) in tasks


@pytest.mark.slow
def test_a_plan_for_other_devices_is_refused_with_what_each_rank_has(arachne, stored, config):
    plan = stored("A100-40=2,V100-16=2", "V100-16", "A100-40")
    run = ("train", "--plan", plan, "--model", config, "--device", "cpu", "--steps", 1)
    code, _, err = arachne(*run)
    assert code == 2
    assert "the devices are not those of the plan on 4 of 4 ranks" in err
    assert "has CPU with" in err
    assert "the plan wants V100-16" in err
    code, out, _ = arachne(*run, "--any-device", "--format", "json")
    assert code == 0
    assert len(losses(out)) == 1


@pytest.mark.slow
def test_a_rehearsal_follows_a_mixed_plan_and_is_labelled(arachne, stored):
    plan = stored("A100-40=2,V100-16=2", "V100-16", "A100-40")
    code, out, _ = arachne("train", "--plan", plan, "--emulate", "--speed", "0.8", "--epochs", 2)
    assert code == 0
    assert out.startswith("emulated: ranks slept for their planned times")
    with PlanStore.open(database_url(None)) as store:
        runs = store.list_runs(plan=plan)
        assert {run.status for run in runs} == {"emulated"}
        assert not store.measurements()
    # Sleeps cannot end early; on a busy machine they end late.
    assert all(1.0 <= run.fidelity < 1.5 for run in runs)


def test_a_dry_run_prints_a_command_for_each_node_and_writes_the_job(arachne, stored, tmp_path):
    plan = stored("A100-40=2,V100-16=2", "V100-16", "A100-40")
    tokens = tmp_path / "corpus.npy"
    np.save(tokens, np.zeros(10_000, dtype=np.uint16))
    job = tmp_path / "job.json"
    model = tmp_path / "config.json"
    model.write_text(json.dumps(config_of_spec(SPEC, sequence_length=16)))
    run = ("train", "--plan", plan, "--model", model, "--dry-run", "--job", job, "--tokens", tokens)
    code, out, _ = arachne(*run, "--hosts", "volta,ampere", "--epochs", "2")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "# on volta: ranks 0-1 on 2 x V100-16"
    assert "--node-rank=0 --nproc-per-node=2 --master-addr=volta --master-port=29500" in lines[1]
    assert lines[2] == "# on ampere: ranks 2-3 on 2 x A100-40"
    written = job_from_json(json.loads(job.read_text()))
    assert written.plan_id == plan
    assert written.steps == 2 * (9_999 // 16) // 8
    assert replace(written.spec, name=SPEC.name) == SPEC
    code, out, _ = arachne(*run, "--launcher", "srun", "--hosts", "volta,ampere")
    assert code == 0
    assert "volta volta ampere ampere" in out


def test_what_does_not_fit_is_refused_before_anything_starts(arachne, stored, config):
    plan = stored()
    run = ("train", "--plan", plan, "--model", config)
    for more, words in (
        ((), "without --tokens the text is made up, and has no end"),
        (("--steps", 1, "--ema", "0.9"), "--ema does not apply to pipeline plans"),
        (("--steps", 1, "--max-restarts", 1), "restarted ranks need a checkpoint"),
        (("--steps", 1, "--engine", "torch"), "pipeline 0 has stages of unlike replicas"),
        (("--steps", 1, "--pipeline-schedule", "interleaved"), "only torch's engine interleaves"),
        (("--steps", 1, "--chunks", 2), "--chunks 2 is for interleaved stages"),
    ):
        code, _, err = arachne(*run, *more)
        assert code == 2, err
        assert words in err
    code, _, err = arachne("train", "--plan", plan, "--steps", 1)
    assert code == 2
    assert "unknown model 'tiny-llama'" in err
    code, _, err = arachne("train", "--plan", plan, "--plan", plan)
    assert code == 2
    assert "one pipeline plan" in err
    code, _, err = arachne("train", "--steps", 1)
    assert code == 2
    assert "--steps is for pipeline plans" in err
