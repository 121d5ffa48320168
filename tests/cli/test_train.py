"""``arachne train`` from the outside: it resumes on other ranks, re-plans, and survives a loss."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import arachne_opt
from arachne_opt.cli import run_report
from arachne_opt.errors import StoreError
from arachne_opt.executor.checkpoint_files import (
    Training,
    complete,
    newest,
    partial_path,
    read_training,
)
from arachne_opt.executor.job_json import job_from_json, read_json
from arachne_opt.executor.report import ReplayReport
from arachne_opt.executor.sampler import Position, Sampler, clip_ids

ROOT = Path(arachne_opt.__file__).parent.parent
CLIPS = ROOT / "examples" / "clips-tiny.csv"
TRAIN = ("train", "--workload", CLIPS, "--model", "toy", "--iteration-size", "3", "--time-limit")


@pytest.mark.slow
def test_a_training_resumes_on_other_ranks_plans_ahead_and_follows_drift(arachne, tmp_path):
    folder = ("--checkpoint-dir", tmp_path / "kept", "--iterations", "0:3")
    saved = ("--save", tmp_path / "model.pt", "--ema", "0.5")
    code, out, _ = arachne(*TRAIN, "0.5", "--cluster", "CPU:2", *folder, *saved)
    assert code == 0
    assert {path.name for path in tmp_path.glob("*.pt")} == {"model.pt", "model.ema.pt"}
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["it0", "it1", "it2"]

    code, _, err = arachne(*TRAIN, "0.5", "--cluster", "CPU:1", *folder)
    assert code == 2
    assert "holds checkpoints of a training; try --resume" in err

    more = ("--resume", "--epochs", "3", "--plan-ahead", "--replan-above", "0.01")
    code, out, err = arachne(*TRAIN, "0.3", "--cluster", "CPU:1", *folder, *more)
    assert code == 0
    assert "going on from step-00000003: 3 steps, 1 epochs and 0 clips are done" in err
    assert "planning anew with costs corrected" in err
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["3", "4", "5", "6", "7", "8"]

    code, out, err = arachne(*TRAIN, "0.3", "--cluster", "CPU:1", *folder, *more)
    assert (code, out) == (0, "")
    assert "all 3 epochs are trained; nothing is left to do" in err


def test_a_plan_for_another_number_of_ranks_is_refused_before_anything_starts(arachne, tmp_path):
    clips = ("--workload", CLIPS, "--model", "toy", "--iterations", "0:1", "--time-limit", "0.2")
    code, out, _ = arachne("solve", "cascade", *clips, "--cluster", "CPU:2", "--format", "json")
    assert code == 0
    plan_id = json.loads(out)["plans"][0]["id"]
    code, _, err = arachne("train", *clips, "--cluster", "CPU:4", "--plan", plan_id)
    assert code == 2
    assert "the plan is for 2 devices" in err
    assert "this run has 4" in err
    assert arachne("runs", "list", "--format", "json")[1].count('"id"') == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-restarts", "1"), "restarted ranks need a checkpoint to go on from"),
        (("--resume",), "checkpoints need a folder"),
        (("--plan-ahead", "--group", "clips"), "go with the micro-batches of buckets only"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_planned(
    arachne, options, message
):
    code, out, err = arachne(*TRAIN, "0.5", "--cluster", "CPU:2", *options)
    assert (code, out) == (2, "")
    assert message in err


def test_a_database_lost_during_the_training_costs_the_record_alone(capsys, monkeypatch):
    def lost(*_):
        raise StoreError("the disk is full", where="plans.db")

    monkeypatch.setattr(run_report, "keep_runs", lost)
    report = ReplayReport(
        model="toy",
        world_size=1,
        device="cpu",
        threads_per_rank=1,
        weight_rule="clip",
        iterations=(),
    )
    run_report.keep_runs_if_possible(object(), report)
    said = capsys.readouterr().err
    assert "the training is done, but its runs are not stored: plans.db: the disk is full" in said


@pytest.mark.slow
def test_ctrl_c_ends_a_training_with_130_and_leaves_a_checkpoint_to_go_on_from(tmp_path):
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "arachne_opt", *map(str, TRAIN), "0.3", "--cluster", "CPU:1"]
    command += ["--db", str(tmp_path / "plans.db"), "--epochs", "100000"]
    command += ["--checkpoint-dir", str(kept), "--checkpoint-every", "1"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while newest(kept) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted"
    assert read_training(newest(kept)).position.step > 0


@pytest.mark.slow
def test_the_example_of_an_existing_loop_gives_one_process_losses_on_two_ranks():
    def losses(ranks):
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *launcher, str(ROOT / "examples" / "existing_loop.py")]
        done = subprocess.run(
            [*command, str(CLIPS)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.split()[3] for line in done.stdout.splitlines() if line.startswith("step")]

    two, one = losses(2), losses(1)
    assert len(one) == 3
    assert one == two
    assert len(set(one)) == 3


@pytest.mark.slow
def test_the_trainer_is_a_public_name_that_loads_torch_only_when_it_is_asked_for():
    code = "import arachne_opt.executor as e, sys; assert 'torch' not in sys.modules; "
    code += "assert 'CascadeTrainer' in e.__all__; from arachne_opt.executor import CascadeTrainer"
    code += "; assert 'torch' in sys.modules and CascadeTrainer.__name__ == 'CascadeTrainer'"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_the_rest_of_a_begun_epoch_is_planned_anew_where_it_is_cut_otherwise(arachne, tmp_path):
    kept, job = tmp_path / "kept", tmp_path / "job.json"
    partial = partial_path(kept, 2)
    partial.mkdir(parents=True)
    trained = frozenset(["clip000000", "clip000003"])
    training = Training(
        position=Position(step=2, epoch=1, trained=trained),
        model="toy",
        seed=0,
        weight_rule="clip",
        sharding="zero1",
        world_size=4,
        averaged=False,
    )
    complete(partial, training, keep=2)
    options = ("--cluster", "CPU:2", "--epochs", "3", "--resume")
    dry = ("--checkpoint-dir", kept, "--dry-run", "--job", job, "--max-restarts", "2")
    code, out, err = arachne(*TRAIN, "0.3", *options, *dry)
    assert code == 0, err
    assert "going on from step-00000002: 2 steps, 1 epochs and 2 clips are done" in err
    assert out.startswith("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ")
    assert "--max-restarts=2" in out
    made = job_from_json(read_json(job))
    whole = {clip for it in made.iterations for clip in clip_ids(it.batches)}
    rest = {clip for it in made.opening for clip in clip_ids(it.batches)}
    assert rest == whole - trained
    assert len(whole) > len(rest)
    assert made.opening_epoch == 1
    assert all(it.plan_id for it in made.opening)
    sampler = Sampler(made, training.position)
    assert sampler.total_steps == 2 + len(made.opening) + len(made.iterations)
