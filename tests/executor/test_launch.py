"""Real launches, forked or by torchrun: reports come back; whatever goes wrong ends all ranks."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.launch import compose, forks, launch, run_local, threads_for
from arachne_opt.executor.measure import (
    MeasureJob,
    measure_job_from_json,
    measure_job_to_json,
    measure_local,
)
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.report import run_records
from tests.executor import reference
from tests.executor.jobs import ODD, SMALL, batch, iteration_of, job_of
from tests.executor.processes import forked_ranks_of, ranks_of

RUNS = ((0, 0, (0,), 0), (1, 0, (1,), 0), (0, 1, (0, 1), 1), (1, 1, (1,), 2))


def two_rank_job(**fields):
    batches = (batch("a", ODD), batch("b", SMALL, 2, path=fields.pop("path", "")))
    return job_of(iteration_of("it", batches, RUNS, devices=2), **fields)


def test_the_command_is_torchruns_for_one_machine_or_many():
    one = compose(Path("job.json"), 4, Path("report.json"))
    assert one[1:3] == ["-m", "torch.distributed.run"]
    assert "--standalone" in one
    assert "--nproc-per-node=4" in one
    assert one[-4:] == ["-m", "arachne_opt.executor.worker", "job.json", "report.json"]
    many = compose(Path("j"), 16, Path("r"), nodes=2, rendezvous="head:29500")
    assert {"--nnodes=2", "--nproc-per-node=8", "--rdzv-endpoint=head:29500"} <= set(many)
    with pytest.raises(InputError, match="do not spread evenly"):
        compose(Path("j"), 5, Path("r"), nodes=2, rendezvous="head:29500")
    with pytest.raises(InputError, match="need a meeting point"):
        compose(Path("j"), 4, Path("r"), nodes=2)


def test_cores_are_shared_among_ranks_unless_a_number_is_asked_for(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert [threads_for(n, 0) for n in (1, 2, 16)] == [8, 4, 1]
    assert threads_for(16, 3) == 3


def test_ranks_are_forked_where_no_gpu_is_and_none_is_started_again(monkeypatch):
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/dev/nvidiactl")
    assert [forks("auto"), forks("cpu"), forks("cuda")] == [False, True, False]
    assert not forks("cpu", max_restarts=1)
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert [forks("auto"), forks("cuda")] == [True, False]


def test_missing_pixels_are_named_before_any_process_starts(tmp_path):
    job = two_rank_job(path=str(tmp_path / "no.npy"))
    with pytest.raises(InputError, match=r"clip b-0: the file .*no\.npy does not exist"):
        run_local(job, 2)


def test_a_missing_folder_for_the_parameters_is_found_before_the_training(tmp_path):
    job = two_rank_job(save_parameters=str(tmp_path / "no" / "model.pt"))
    with pytest.raises(InputError, match="folder for the parameters does not exist"):
        run_local(job, 2)


def test_a_job_that_cannot_be_written_is_a_failed_run(tmp_path):
    with pytest.raises(RunError, match="cannot write the job"):
        run_local(two_rank_job(), 2, folder=tmp_path / "missing")


@pytest.mark.slow
def test_parameters_that_cannot_be_saved_are_a_failed_run(tmp_path):
    (tmp_path / "model.pt").mkdir()
    job = two_rank_job(save_parameters=str(tmp_path / "model.pt"))
    with pytest.raises(RunError, match="cannot save the parameters"):
        run_local(job, 2)


@pytest.mark.slow
def test_a_run_reports_progress_and_leaves_the_parameters_of_one_process(tmp_path):
    seen = []
    saved = tmp_path / "model.pt"
    job = two_rank_job(epochs=2, learning_rate=1e-3, save_parameters=str(saved))
    report = run_local(job, 2, on_progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(1, 2), (2, 2)]
    assert "loss" in seen[0].text
    losses, _, parameters = reference.train(job)
    assert [it.loss for it in report.iterations] == pytest.approx(losses, rel=1e-6)
    assert reference.worst_difference(torch.load(saved), parameters) < 1e-5
    records = run_records(report, ["p1"])
    assert [(r.plan_id, r.world_size, r.planned_us) for r in records] == [("p1", 2, 300_000)] * 2
    assert records[1].report["iterations"][0]["step"] == 1


@pytest.mark.slow
def test_a_clip_that_only_a_rank_finds_broken_is_left_out_and_named(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros((1, 32, 48, 3)))
    report = run_local(two_rank_job(path=str(tmp_path / "v.npy")), 2)
    left_out = dict(report.iterations[0].left_out)
    assert left_out.keys() == {"b-0", "b-1"}
    assert all("holds float64" in why for why in left_out.values())
    assert report.notes == ("2 clips could not be used and were left out: b-0, b-1",)


@pytest.mark.slow
def test_a_killed_rank_is_named_and_ends_the_run(tmp_path):
    def kill_rank_1(progress):
        if progress.done == 1:
            os.kill(ranks_of(tmp_path)[1], signal.SIGKILL)

    job = replace(two_rank_job(epochs=500), timeout_floor_s=30.0)
    with pytest.raises(RunError, match="rank 1: the process ended with code -9") as caught:
        run_local(job, 2, on_progress=kill_rank_1, folder=tmp_path, forked=False)
    assert caught.value.exit_code == 8
    assert ranks_of(tmp_path) == {}


@pytest.mark.slow
def test_a_rank_that_hangs_ends_the_run_after_the_time_out(tmp_path):
    def stop_rank_1(progress):
        if progress.done == 1:
            os.kill(forked_ranks_of(tmp_path)[1], signal.SIGSTOP)

    # Each rank says what it is at, or is named for saying nothing.
    hang = r"rank 0: .*[Tt]imed out.*\(rank 0: step \d+.*; rank 1: no answer\)"
    job = replace(two_rank_job(epochs=500), timeout_floor_s=2.0, timeout_factor=1.0)
    with pytest.raises(RunError, match=hang):
        run_local(job, 2, on_progress=stop_rank_1, folder=tmp_path)
    assert ranks_of(tmp_path) == {}  # though a stopped process hears no polite signal


@pytest.mark.slow
def test_ranks_end_with_the_process_that_started_them_even_if_it_is_killed(tmp_path):
    job = replace(two_rank_job(epochs=5000), timeout_floor_s=60.0)
    parent = multiprocessing.get_context("fork").Process(
        target=run_local, args=(job, 2), kwargs={"folder": tmp_path}
    )
    parent.start()
    deadline = time.monotonic() + 60
    while len(forked_ranks_of(tmp_path)) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(forked_ranks_of(tmp_path)) == 2
    parent.kill()
    parent.join()
    while ranks_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ranks_of(tmp_path) == {}


@pytest.mark.slow
def test_an_interrupt_stops_all_ranks(tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_local(two_rank_job(epochs=500), 2, on_progress=interrupt, folder=tmp_path, forked=False)
    deadline = time.monotonic() + 5
    while ranks_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ranks_of(tmp_path) == {}


@pytest.mark.slow
def test_an_unknown_job_is_refused_by_the_ranks():
    with pytest.raises(InputError, match="unknown job format 'other/1'"):
        launch({"format": "other/1", "threads_per_rank": 1}, 1)


MEASURE = MeasureJob(
    model=ModelChoice(preset="toy"),
    batches=(batch("a", ODD), batch("b", SMALL, 2)),
    degrees=(1, 2),
    repeats=2,
)


def test_a_measurement_job_survives_json_and_leaves_out_what_cannot_run():
    assert measure_job_from_json(measure_job_to_json(MEASURE)) == MEASURE
    wide = replace(MEASURE, degrees=(1, 3))
    assert [(work.task, work.degree) for work in wide.work()] == [
        ("encode", 1),
        ("encode", 3),
        ("denoise", 1),
    ] * 2


def test_denoise_is_measured_both_ways_where_a_plan_may_choose():
    both = replace(MEASURE, recompute=True, degrees=(1,))
    assert measure_job_from_json(measure_job_to_json(both)) == both
    ways = [(work.task, work.recompute) for work in both.work()]
    assert ways == [("encode", False), ("denoise", False), ("denoise", True)] * 2
    always = ModelChoice(preset="toy", checkpointing=True)
    with pytest.raises(InputError, match="there is no choice"):
        replace(both, model=always)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"degrees": ()}, "needs micro-batches and degrees"),
        ({"tasks": ("decode",)}, "unknown task 'decode'"),
        ({"repeats": 0}, "repeats must be positive"),
        ({"device": "tpu"}, "unknown device"),
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        replace(MEASURE, **fields)


def test_a_degree_wider_than_the_ranks_cannot_be_measured():
    with pytest.raises(InputError, match="degree 2 is wider than the 1 ranks"):
        measure_local(MEASURE, 1)


@pytest.mark.slow
def test_every_task_is_measured_alone_at_every_degree():
    seen = []
    rows = measure_local(MEASURE, 2, on_progress=seen.append)
    assert [(r.task, r.batch, r.degree) for r in rows] == [
        (work.task, work.batch.size, work.degree) for work in MEASURE.work()
    ]
    assert len(seen) == len(rows) == 8
    assert all(r.duration_us > 0 and r.source == "profile" and r.model == "toy" for r in rows)
    assert rows[0].text_tokens == 3
    weights = 4 * 123_152
    assert all(weights < r.memory_bytes < 2**30 for r in rows)
