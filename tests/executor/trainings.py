"""Trainings that stop and go on: a small epoch cut into iterations, for any number of ranks."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from arachne_opt.errors import ArachneError, InputError
from arachne_opt.executor.agreement import share_job
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions
from arachne_opt.executor.report import IterationReport
from arachne_opt.executor.sampler import clip_ids
from arachne_opt.executor.trainer import CascadeTrainer
from arachne_opt.workload import Iteration
from tests.executor.jobs import ODD, SMALL, batch, iteration_of, job_of

EPOCH = tuple(
    Iteration(name=f"it{i}", micro_batches=(batch(f"a{i}", SMALL, 2), batch(f"b{i}", ODD)))
    for i in range(4)
)
CLIPS = {clip for iteration in EPOCH for clip in clip_ids(iteration)}
FULL = UpdateOptions(schedule="cosine", warmup_steps=2, clip_norm=0.5, ema_decay=0.9)


def planned(iteration: Iteration, devices: int) -> ReplayIteration:
    """The iteration under a plan that uses all ranks: groups of two, and what is left alone."""
    pair = tuple(range(min(2, devices)))
    last = (devices - 1,)
    runs: list[tuple[int, int, tuple[int, ...], int]] = []
    for c in range(len(iteration.micro_batches)):
        group = pair if c % 2 == 0 else last
        runs += [(c, 0, last, 2 * c), (c, 1, group, 2 * c + 1)]
    return iteration_of(iteration.name, iteration.micro_batches, tuple(runs), devices)


def epoch_job(
    devices: int, folder: Path | str = "", *, every: int = 0, epochs: int = 2, **fields: Any
) -> ReplayJob:
    iterations = tuple(planned(iteration, devices) for iteration in EPOCH)
    checkpoints = CheckpointOptions(folder=str(folder), every=every)
    options = {"update": FULL, "learning_rate": 1e-2, **fields}
    return job_of(*iterations, epochs=epochs, checkpoints=checkpoints, **options)


def resumed(job: ReplayJob) -> ReplayJob:
    return replace(job, checkpoints=replace(job.checkpoints, resume=True))


def train_for(
    rank: int, job: ReplayJob, steps: int | None = None
) -> tuple[list[list[str]], dict[str, Any], dict[str, Any], tuple[str, ...]]:
    """Trains some steps; gives the clips of each, weights, their average, and failures."""
    trainer = CascadeTrainer(job)
    trained = []
    for step in list(trainer.steps)[:steps]:
        trained.append(clip_ids(trainer.sampler.iteration_at(step).batches))
        trainer.train_step(step)
    trainer.finish()
    weights, average = trainer.update.weights(), trainer.update.weights(averaged=True)
    failures = tuple(trainer.checkpoints.failures) if trainer.checkpoints else ()
    return trained, _arrays(weights), _arrays(average), failures


def train_with_full_disk(rank: int, job: ReplayJob, free_steps: int, limit_bytes: int) -> Any:
    """Trains; after some steps rank 1 cannot write files beyond a size any more."""
    import resource

    trainer = CascadeTrainer(job)
    for step in trainer.steps:
        if step == free_steps and rank == 1:
            trainer.checkpoints.finish()
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        trainer.train_step(step)
    trainer.finish()
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return trainer.checkpoints.failures


def train_until_writer_dies(rank: int, job: ReplayJob, last_step: int) -> None:
    """Rank 1 is killed in the middle of writing the checkpoint after a step."""
    import os
    import signal

    from torch.distributed.checkpoint import FileSystemWriter

    trainer = CascadeTrainer(job)
    for step in trainer.steps:
        if step == last_step:
            trainer.checkpoints.finish()
            if rank == 1:
                FileSystemWriter.write_data = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        trainer.train_step(step)
    trainer.finish()


def train_beside_a_slow_rank(rank: int, job: ReplayJob, slow: int) -> list[IterationReport]:
    """The reports of a training in which a rank needs a fifth of a second more per forward."""
    trainer = CascadeTrainer(job)
    inside = trainer.adapter.denoise_loss

    def late(inputs: Any) -> Any:
        if rank == slow and inputs.shape == SMALL:
            time.sleep(0.2)
        return inside(inputs)

    trainer.adapter.denoise_loss = late
    return [trainer.train_step(step) for step in trainer.steps]


def share_a_job_or_not(rank: int) -> tuple[bool, str]:
    """Whether a job that rank 0 makes arrives, and what is said of one that it cannot make."""

    def fail() -> ReplayJob:
        raise InputError("no clips", hint="others")

    same = share_job(lambda: epoch_job(2)) == epoch_job(2)
    try:
        share_job(fail)
    except ArachneError as error:
        return same, str(error)
    return same, ""


def train_with_infinite_loss(rank: int, job: ReplayJob) -> tuple[str, bool]:
    """What is said, and whether the weights stay, where one clip's loss is infinite."""
    trainer = CascadeTrainer(job)
    before = trainer.update.weights()
    inside = trainer.adapter.denoise_loss
    trainer.adapter.denoise_loss = lambda inputs: inside(inputs) * float("inf")
    try:
        trainer.train_step(0)
    except ArachneError as error:
        after = trainer.update.weights()
        return str(error), all(torch.equal(before[name], after[name]) for name in before)
    return "", False


def disagree(rank: int, job: ReplayJob, other: ReplayJob) -> tuple[str, int]:
    """What each rank says, and the groups that it made, where rank 1 has another plan."""
    trainer = CascadeTrainer(other if rank == 1 else job)
    try:
        trainer.train_step(0)
    except Exception as error:
        dist.barrier()
        return str(error), trainer.pool.made
    return "", trainer.pool.made


def _arrays(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in tensors.items()}
