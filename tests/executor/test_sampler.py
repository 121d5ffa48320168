"""The position of a training is a set of clips; steps, logs and plans follow from it."""

from dataclasses import replace

import pytest

from arachne_opt.errors import InputError
from arachne_opt.executor.job_json import job_from_json, job_to_json
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions
from arachne_opt.executor.plan_mail import PlanMail, deliver, plan_fingerprint
from arachne_opt.executor.sampler import Position, Sampler, clip_ids, unfinished
from arachne_opt.executor.step_log import StepFollower, StepLog, step_log_path
from tests.executor.test_drift import step, task
from tests.executor.trainings import CLIPS, EPOCH, epoch_job, planned


def names(sampler):
    steps = range(sampler.position.step, sampler.total_steps)
    return [sampler.iteration_at(number).name for number in steps]


def test_a_fresh_training_runs_all_epochs():
    assert names(Sampler(epoch_job(2))) == ["it0", "it1", "it2", "it3"] * 2


def test_an_epoch_ends_when_no_clip_is_left():
    sampler = Sampler(epoch_job(2))
    for number in range(5):
        sampler.advance(sampler.iteration_at(number).batches)
    assert sampler.position == Position(step=5, epoch=1, trained=frozenset(clip_ids(EPOCH[0])))


def test_a_resumed_training_skips_what_was_trained():
    trained = frozenset(clip_ids(EPOCH[0]) + clip_ids(EPOCH[2]))
    sampler = Sampler(epoch_job(2), Position(step=2, epoch=0, trained=trained))
    assert names(sampler) == ["it1", "it3", "it0", "it1", "it2", "it3"]
    done = Sampler(epoch_job(2), Position(step=8, epoch=2))
    assert names(done) == []
    whole = Sampler(epoch_job(2), Position(step=4, epoch=0, trained=frozenset(CLIPS)))
    assert names(whole) == ["it0", "it1", "it2", "it3"]


def test_an_iteration_of_trained_and_other_clips_is_refused_unless_it_is_cut_anew():
    half = Position(step=1, epoch=1, trained=frozenset(["a0-0"]))
    with pytest.raises(InputError, match="1 of 3 clips were trained before, among them a0-0"):
        Sampler(epoch_job(2), half)
    rest = unfinished(EPOCH, half.trained)
    assert [len(clip_ids(iteration)) for iteration in rest] == [2, 3, 3, 3]
    opening = tuple(planned(iteration, 2) for iteration in rest)
    job = epoch_job(2, epochs=3, opening=opening, opening_epoch=1)
    assert names(Sampler(job, half)) == ["it0", "it1", "it2", "it3"] * 2
    # Later epochs run whole iterations again.
    later = Sampler(job, Position(step=5, epoch=2))
    assert later.iteration_at(5) is job.iterations[0]


def test_a_clip_that_an_epoch_holds_twice_cannot_be_kept_track_of(tmp_path):
    job = epoch_job(2)
    twice = (*job.iterations, job.iterations[0])
    with pytest.raises(InputError, match="clip a0-0 is in the epoch twice"):
        replace(job, iterations=twice, checkpoints=CheckpointOptions(folder=str(tmp_path)))


def test_a_job_with_all_options_survives_json():
    job = replace(
        epoch_job(2, "folder", every=3, epochs=4),
        update=UpdateOptions(
            sharding="fsdp2",
            precision="bf16",
            schedule="cosine",
            warmup_steps=3,
            clip_norm=0.5,
            ema_decay=0.25,
        ),
        opening=(planned(EPOCH[1], 2),),
        opening_epoch=2,
        plan_folder="plans",
    )
    job = replace(job, checkpoints=replace(job.checkpoints, keep=5, resume=True))
    assert job_from_json(job_to_json(job)) == job


def test_a_log_drops_steps_that_run_again_and_is_followed_without_repeats(tmp_path):
    log = StepLog(step_log_path(tmp_path / "report.json"))
    follower = StepFollower(step_log_path(tmp_path / "report.json"))
    assert list(follower.new()) == []
    assert log.begin(0) == ()
    for number in range(3):
        log.append(step(number, task("a", 1.0)))
    assert [report.step for report in follower.new()] == [0, 1, 2]
    assert [report.step for report in log.begin(2)] == [0, 1]
    for number in (2, 3):
        log.append(step(number, task("a", 2.0)))
    assert [report.step for report in follower.new()] == [3]
    (tmp_path / "none").mkdir()
    StepLog(tmp_path / "none").append(step(0, task("a", 1.0)))  # told, not raised


def test_a_delivered_plan_is_read_once_and_one_that_does_not_fit_is_passed_over(tmp_path, caplog):
    job = replace(epoch_job(2), plan_folder=str(tmp_path))
    mail, first = PlanMail(job), job.iterations[0]
    assert mail.newer(first) is None
    better = replace(planned(EPOCH[0], 2), plan_id="p7")
    deliver(tmp_path, better)
    assert mail.newer(first) == better
    assert mail.newer(first) is None
    assert plan_fingerprint(better) != plan_fingerprint(first)
    deliver(tmp_path, planned(EPOCH[1], 3))
    assert mail.newer(job.iterations[1]) is None
    assert "the plan is for 3 devices, this run has 2 ranks" in caplog.text
    (path,) = (p for p in tmp_path.iterdir() if "p7" in p.read_text())
    path.write_text("{")
    mail = PlanMail(job)
    assert mail.newer(first) is None
    assert "a new plan for it0 is passed over" in caplog.text
    assert PlanMail(epoch_job(2)).newer(first) is None
