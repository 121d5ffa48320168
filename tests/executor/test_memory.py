"""The peak of each rank of a training is what the memory model says, within 15 %."""

import pytest

from arachne_opt.costs.runtime_memory import RuntimeMemory
from arachne_opt.executor.job import ReplayJob
from arachne_opt.executor.memory import LiveTensors, tensors_of
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.models import model_spec
from arachne_opt.workload import Shape
from tests.executor.jobs import batch, half_recomputed, iteration_of
from tests.executor.ranks import run_ranks

TOLERANCE = 0.15
LONG = Shape(frames=17, height=96, width=96)
FLAT = Shape(frames=1, height=160, width=192)
PRESETS = ("tiny-wan", "tiny-cogvideox", "tiny-hunyuan-video")
PLANS = ("encode and wide", "kept and computed again")


def iteration(name):
    """Two ranks; encoding is the largest task of the first plan, denoising of the others."""
    if name == "encode and wide":
        runs = ((0, 0, (0,), 0), (1, 0, (1,), 0), (0, 1, (0, 1), 1), (1, 1, (0, 1), 2))
        return iteration_of(name, (batch("a", LONG), batch("b", FLAT)), runs, devices=2)
    # Latents of a micro-batch of stills take little to make and much to denoise.
    runs = ((0, 0, (0,), 0), (1, 0, (1,), 0), (0, 1, (0,), 1), (1, 1, (1,), 1))
    both = iteration_of(name, (batch("a", FLAT, 6), batch("b", FLAT, 6)), runs, devices=2)
    return half_recomputed(both)


def measure(rank, jobs):
    """Peak of each job's second step: all tensors of the training count."""
    from arachne_opt.executor.trainer import CascadeTrainer

    found = []
    for job in jobs:
        trainer = CascadeTrainer(job)
        trainer.train_step(0)
        moments = [v for s in trainer.update.adam.state.values() for v in s.values()]
        modules = trainer.adapter.vae, trainer.adapter.transformer
        with LiveTensors([*tensors_of(modules), *moments]) as live:
            trainer.train_step(1)
        found.append(live.peak_bytes)
    return found


def predicted(job, rank):
    """The largest task of a rank."""
    memory = RuntimeMemory(
        model=model_spec(job.model.preset), ranks=2, sharding=job.update.sharding
    )
    (step,) = job.iterations
    sizes = []
    for p in step.plan.placements:
        if rank in p.devices and step.encodes(p):
            sizes.append(memory.encode_bytes(step.batch_of(p.cascade)))
        elif rank in p.devices:
            batches = step.batch_of(p.cascade)
            sizes.append(memory.denoise_bytes(batches, p.degree, recompute=p.recompute))
    return max(sizes)


@pytest.fixture(scope="module")
def jobs():
    made = {}
    for preset in PRESETS:
        for name in PLANS:
            job = ReplayJob(
                model=ModelChoice(preset=preset), iterations=(iteration(name),), epochs=2
            )
            made[preset, name] = job
    return made


@pytest.fixture(scope="module")
def peaks(jobs):
    answers = run_ranks(measure, 2, list(jobs.values()))
    return {key: [answer[i] for answer in answers] for i, key in enumerate(jobs)}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("preset", PRESETS)
def test_peaks_are_as_predicted(jobs, peaks, preset, name):
    for rank, measured in enumerate(peaks[preset, name]):
        wanted = predicted(jobs[preset, name], rank)
        assert wanted == pytest.approx(measured, rel=TOLERANCE)
