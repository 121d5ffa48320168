"""Trainings that are broken off go on where they were, on any number of ranks."""

import json

import numpy as np
import pytest

from arachne_opt.errors import InputError
from arachne_opt.executor.checkpoint_files import newest, read_training
from arachne_opt.executor.options import UpdateOptions
from arachne_opt.executor.sampler import unfinished
from tests.executor import trainings
from tests.executor.ranks import run_ranks
from tests.executor.trainings import CLIPS, EPOCH, FULL, epoch_job, planned, resumed


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def worst(found, wanted):
    assert found.keys() == wanted.keys()
    return max(np.linalg.norm(found[k] - wanted[k]) / np.linalg.norm(wanted[k]) for k in wanted)


@pytest.fixture(scope="module")
def undisturbed():
    """Clips, weights and average of a run without a break, on 2 ranks."""
    return run_ranks(trainings.train_for, 2, epoch_job(2))[0]


@pytest.mark.parametrize("sharding", ["zero1", pytest.param("fsdp2", marks=pytest.mark.slow)])
def test_a_training_goes_on_as_if_it_had_not_stopped(tmp_path, undisturbed, sharding):
    update = UpdateOptions(
        sharding=sharding, schedule="cosine", warmup_steps=2, clip_norm=0.5, ema_decay=0.9
    )
    job = epoch_job(2, tmp_path, every=2, update=update)
    first, *_ = run_ranks(trainings.train_for, 2, job, 3)[0]
    assert names(tmp_path) == ["step-00000002", "step-00000003"]
    second, weights, average, _ = run_ranks(trainings.train_for, 2, resumed(job))[0]
    assert first + second == undisturbed[0]
    assert worst(weights, undisturbed[1]) < 1e-5
    assert worst(average, undisturbed[2]) < 1e-5
    assert names(tmp_path) == ["step-00000006", "step-00000008"]


@pytest.mark.slow
def test_from_4_to_2_to_3_ranks_every_clip_is_trained_once_per_epoch(tmp_path, undisturbed):
    seen = []
    for devices, steps in ((4, 3), (2, 3), (3, None)):
        job = resumed(epoch_job(devices, tmp_path))
        trained, weights, average, _ = run_ranks(trainings.train_for, devices, job, steps)[0]
        seen += trained
    assert seen == undisturbed[0]
    assert sorted(clip for step in seen for clip in step) == sorted([*CLIPS, *CLIPS])
    # Neither the plans nor the number of ranks is in the gradient.
    assert worst(weights, undisturbed[1]) < 1e-5
    assert worst(average, undisturbed[2]) < 1e-5


@pytest.mark.slow
def test_the_rest_of_an_epoch_may_be_cut_into_other_iterations(tmp_path):
    job = epoch_job(2, tmp_path)
    first, *_ = run_ranks(trainings.train_for, 2, job, 1)[0]
    position = read_training(newest(tmp_path)).position
    assert position.trained == set(first[0])
    # One clip of the second iteration was trained, too, says another training.
    trained = position.trained | {"a1-0"}
    value = json.loads((newest(tmp_path) / "training.json").read_text())
    value["position"]["trained"] = sorted(trained)
    (newest(tmp_path) / "training.json").write_text(json.dumps(value))
    with pytest.raises(AssertionError, match="1 of 3 clips were trained before"):
        run_ranks(trainings.train_for, 2, resumed(job))

    opening = tuple(planned(iteration, 3) for iteration in unfinished(EPOCH, trained))
    job = resumed(epoch_job(3, tmp_path, opening=opening))
    rest, *_ = run_ranks(trainings.train_for, 3, job)[0]
    counts = [clip for step in (*first, ["a1-0"], *rest) for clip in step]
    assert sorted(counts) == sorted([*CLIPS, *CLIPS])
    assert [len(step) for step in rest] == [2, 3, 3, 3, 3, 3, 3]


@pytest.mark.parametrize(
    ("limit_bytes", "reason"),
    [(0, "File too large"), pytest.param(20_000, "is the disk full", marks=pytest.mark.slow)],
)
def test_a_full_disk_costs_a_checkpoint_and_neither_the_run_nor_the_one_before(
    tmp_path, limit_bytes, reason
):
    job = epoch_job(2, tmp_path, every=2, epochs=1)
    failures = run_ranks(trainings.train_with_full_disk, 2, job, 3, limit_bytes)
    for said in failures:
        assert len(said) == 1
        assert "checkpoint of step-00000004 not kept: rank 1" in said[0]
        assert reason in said[0]
    assert names(tmp_path) == ["step-00000002"]
    trained, weights, *_ = run_ranks(trainings.train_for, 2, resumed(job))[0]
    assert len(trained) == 2
    _, wanted, *_ = run_ranks(trainings.train_for, 2, epoch_job(2, epochs=1))[0]
    assert worst(weights, wanted) < 1e-5


def test_a_writer_that_is_killed_leaves_the_checkpoint_before(tmp_path, undisturbed):
    job = epoch_job(2, tmp_path, every=2)
    with pytest.raises(AssertionError, match="rank 1 ended without an answer"):
        run_ranks(trainings.train_until_writer_dies, 2, job, 3)
    assert names(tmp_path) == [".partial-step-00000004", "step-00000002"]
    _, weights, *_ = run_ranks(trainings.train_for, 2, resumed(job))[0]
    assert worst(weights, undisturbed[1]) < 1e-5
    assert names(tmp_path) == ["step-00000006", "step-00000008"]


@pytest.mark.slow
def test_a_folder_with_a_training_is_not_written_over_by_accident(tmp_path):
    job = epoch_job(1, tmp_path, epochs=1)
    run_ranks(trainings.train_for, 1, job, 1)
    with pytest.raises(AssertionError, match="holds checkpoints of a training; try --resume"):
        run_ranks(trainings.train_for, 1, job, 1)
    other = resumed(epoch_job(1, tmp_path, update=UpdateOptions(sharding="fsdp2")))
    with pytest.raises(AssertionError, match="of the sharding zero1, not fsdp2"):
        run_ranks(trainings.train_for, 1, other, 1)
    with pytest.raises(AssertionError, match="of the seed 0, not 5"):
        run_ranks(trainings.train_for, 1, resumed(epoch_job(1, tmp_path, seed=5)), 1)
    (newest(tmp_path) / ".metadata").write_bytes(b"cut")
    with pytest.raises(AssertionError, match="cannot load the checkpoint"):
        run_ranks(trainings.train_for, 1, resumed(job), 1)


def test_a_folder_that_cannot_be_written_is_found_before_the_training(tmp_path):
    (tmp_path / "file").write_text("")
    job = epoch_job(1, tmp_path / "file" / "checkpoints")
    with pytest.raises(AssertionError, match="cannot write to the folder of the checkpoints"):
        run_ranks(trainings.train_for, 1, job, 1)


@pytest.mark.slow
def test_a_replicated_training_can_go_on_sharded(tmp_path, undisturbed):
    whole = UpdateOptions(
        sharding="replicated", schedule="cosine", warmup_steps=2, clip_norm=0.5, ema_decay=0.9
    )
    run_ranks(trainings.train_for, 1, epoch_job(1, tmp_path, update=whole), 3)
    job = resumed(epoch_job(2, tmp_path, update=FULL))
    _, weights, average, _ = run_ranks(trainings.train_for, 2, job)[0]
    assert worst(weights, undisturbed[1]) < 1e-5
    assert worst(average, undisturbed[2]) < 1e-5


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read the checkpoint"):
        read_training(tmp_path)
    (tmp_path / "training.json").write_text('{"format": "other/1"}')
    with pytest.raises(InputError, match="format is 'other/1'"):
        read_training(tmp_path)
    assert newest(tmp_path / "missing") is None
