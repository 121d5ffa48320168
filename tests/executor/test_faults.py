"""Killed, stuck, slow and disagreeing ranks: each is named, and the training goes on or ends."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.failures import failure_of, hopeless, write_failure
from arachne_opt.executor.launch import run_local
from arachne_opt.executor.options import UpdateOptions
from arachne_opt.executor.positions import PositionBoard
from arachne_opt.executor.stragglers import find_straggler
from arachne_opt.executor.watchdog import Watchdog
from tests.executor import reference, trainings
from tests.executor.ranks import run_ranks
from tests.executor.test_launch import ranks_of
from tests.executor.trainings import epoch_job


def plain(folder, **fields):
    """A job that the reference can follow: no schedule, no clipping, no average."""
    update = UpdateOptions()
    return epoch_job(2, folder, update=update, learning_rate=1e-3, **fields)


@pytest.mark.slow
def test_a_rank_killed_in_an_iteration_is_restarted_and_nothing_is_lost(tmp_path):
    """The killed run ends with the parameters of one process that was never disturbed."""
    runs, checkpoints = tmp_path / "run", tmp_path / "checkpoints"
    runs.mkdir()
    saved = tmp_path / "model.pt"
    job = plain(checkpoints, every=2, save_parameters=str(saved))
    seen, steps, notes = [], [], []

    def kill_once(progress):
        # The checkpoint of step 4 begins only when that of step 2 is whole.
        if progress.done == 5 and progress.done not in seen:
            # A moment later rank 1 is in the middle of step 5.
            threading.Timer(0.02, os.kill, (ranks_of(runs)[1], signal.SIGKILL)).start()
        seen.append(progress.done)
        notes.append(progress.note)

    report = run_local(
        job, 2, on_progress=kill_once, on_step=steps.append, folder=runs, max_restarts=1
    )
    assert seen[-1] == 8
    assert len(seen) > 8  # steps after the checkpoint were run twice
    assert [step.step for step in steps] == list(range(8))
    assert any("restart 1: a rank failed; going on after step" in note for note in notes)
    losses, _, parameters = reference.train(job)
    assert [it.step for it in report.iterations] == list(range(8))
    assert [it.loss for it in report.iterations] == pytest.approx(losses, rel=1e-6)
    assert any("went on after step" in note for note in report.notes)
    assert reference.worst_difference(torch.load(saved), parameters) < 1e-5


def test_a_rank_with_another_plan_is_named_before_any_group_is_made():
    job = epoch_job(3)
    other = replace(job.iterations[0], plan_id="another")
    wrong = replace(job, iterations=(other, *job.iterations[1:]))
    answers = run_ranks(trainings.disagree, 3, job, wrong)
    for said, made in answers:
        assert "the ranks disagree on the plan of it0: rank 1 has" in said
        assert made == 0


@pytest.mark.slow
def test_ranks_with_other_jobs_do_not_begin():
    job = epoch_job(2)
    with pytest.raises(AssertionError, match="the ranks disagree on the job: rank 1 has"):
        run_ranks(trainings.disagree, 2, job, replace(job, seed=3))


def test_a_job_that_rank_0_cannot_make_fails_on_all_ranks():
    answers = run_ranks(trainings.share_a_job_or_not, 2)
    assert answers == [
        (True, "no clips; try others"),
        (True, "rank 0: no job: no clips; try others"),
    ]


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_stops_the_training_before_the_weights():
    said, unharmed = run_ranks(trainings.train_with_infinite_loss, 2, epoch_job(2))[0]
    assert "the norm of the gradient is" in said
    assert "the weights are left as they were; try a lower learning rate" in said
    assert unharmed


@pytest.mark.slow
def test_a_slow_rank_of_a_group_is_named_though_all_its_peers_are_late():
    reports = run_ranks(trainings.train_beside_a_slow_rank, 2, epoch_job(2, epochs=1), 1)[0]
    found = [find_straggler(report) for report in reports[1:]]
    assert [straggler.rank for straggler in found] == [1, 1, 1]
    assert all(straggler.ratio > 1.5 for straggler in found)
    assert "denoise of a1 took" in str(found[0])


def test_a_restart_does_not_try_again_what_no_restart_mends(tmp_path):
    report = tmp_path / "report.json"
    write_failure(report, 1, InputError("no frames", where="clip x"), attempt=0)
    assert str(hopeless(report, 1)) == "clip x: no frames"
    assert hopeless(report, 2) is None
    write_failure(report, 0, RunError("lost"), attempt=1)
    assert hopeless(report, 2) is None
    assert str(failure_of(report, "", 1)) == "rank 0: lost"


def test_a_watchdog_answers_when_another_rank_asks(tmp_path, monkeypatch):
    monkeypatch.setattr("arachne_opt.executor.watchdog._LOOK_EVERY_S", 0.02)
    board = PositionBoard(tmp_path / "report.json", 3)
    quiet, asking = Watchdog(1, lambda _: None, board), Watchdog(0, None, board)
    quiet.place = "step 4, task 2 of 9"
    monkeypatch.setattr("arachne_opt.executor.watchdog._ANSWER_PATIENCE_S", 1.0)
    with quiet.task("encode of b", 60.0), asking.task("denoise of a", 60.0):
        said = asking.positions()
    assert "rank 0: before the first step, denoise of a for 0 s" in said
    assert "rank 1: step 4, task 2 of 9, encode of b for 0 s" in said
    assert "rank 2: no answer" in said
    assert Watchdog(0).positions() == ""


def test_torchs_time_outs_carry_the_positions(tmp_path, monkeypatch):
    monkeypatch.setattr("arachne_opt.executor.watchdog._ANSWER_PATIENCE_S", 0.05)
    dog = Watchdog(0, None, PositionBoard(Path(tmp_path) / "r", 2))
    wanted = pytest.raises(RunError, match=r"failed: Timed out .* rank 1: no answer\)")
    with wanted, dog.task("summing gradients", 1.0):
        raise RuntimeError("Timed out waiting 1000ms")
