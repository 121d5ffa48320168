"""Real models under plans of mixed degrees give the gradient of one process, whatever is cached."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from arachne_opt.executor.job import ReplayIteration
from arachne_opt.executor.options import UpdateOptions
from arachne_opt.executor.seeds import clip_pixels, generator
from arachne_opt.workload import Iteration
from tests.executor import rank_tasks, reference
from tests.executor.jobs import half_recomputed, job_of, mixed_iterations
from tests.executor.ranks import run_ranks
from tests.executor.reference_models import MODELS

PRESETS = ("tiny-wan", "tiny-wan-i2v", "tiny-cogvideox", "tiny-hunyuan-video")
RULES = ("clip", "token")
SOURCES = ("encode", "cached", "checkpointed", "planned")
FAMILIES = ("tiny-wan", "tiny-cogvideox", "tiny-hunyuan-video")
SHARDED = ("encode", "cached", "planned")


def without_encode(iteration, latents):
    """The iteration with clips whose latents lie in files, and no encode task."""
    batches = tuple(
        replace(b, clips=tuple(replace(c, latents=latents(c, b.shape)) for c in b.clips))
        for b in iteration.batches.micro_batches
    )
    cascades = tuple(
        replace(c, tasks=(replace(c.tasks[1], predecessors=()),))
        for c in iteration.problem.cascades
    )
    problem = replace(iteration.problem, cascades=cascades)
    placements = tuple(replace(p, task=0) for p in iteration.plan.placements if p.task == 1)
    return ReplayIteration(
        batches=Iteration(name=iteration.name, micro_batches=batches),
        problem=problem,
        plan=replace(iteration.plan, placements=placements),
    )


def half_cached(iteration, latents):
    """The iteration with every other micro-batch cached."""
    cached = without_encode(iteration, latents)
    pick = lambda index: cached if index % 2 else iteration  # noqa: E731
    numbers = range(len(iteration.problem.cascades))
    problem = replace(
        iteration.problem, cascades=tuple(pick(i).problem.cascades[i] for i in numbers)
    )
    batches = tuple(pick(i).batch_of(i) for i in numbers)
    placements = tuple(p for i in numbers for p in pick(i).plan.placements if p.cascade == i)
    return ReplayIteration(
        batches=Iteration(name=iteration.name, micro_batches=batches),
        problem=problem,
        plan=replace(iteration.plan, placements=placements),
    )


class LatentFiles:
    """Writes latents and embeddings of a model, some without text or other embeddings."""

    def __init__(self, folder, preset):
        choice = job_of(preset=preset).model
        self.folder, self.preset, self.config = folder, preset, choice.config()
        self.encode = MODELS[preset](choice).encode
        self.made = 0

    def __call__(self, clip, shape):
        path = self.folder / f"{self.preset}-{clip.id}.safetensors"
        if not path.exists():
            size = (3, shape.frames, shape.height, shape.width)
            tensors = {"latents": self.encode(clip_pixels(clip.id, size)[None])[0].contiguous()}
            self.made += 1
            if self.made % 2:
                noise = generator("file", clip.id)
                tensors["text"] = torch.randn(6, self.config.text_dim, generator=noise)
                for name, wanted in self.config.extras.items():
                    tensors[name] = torch.randn(wanted, generator=noise)
            save_file(tensors, path)
        return str(path)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    torch.set_num_threads(1)
    first, second = mixed_iterations()
    made = {}
    for preset in PRESETS:
        files = LatentFiles(tmp_path_factory.mktemp("latents"), preset)
        cached = (without_encode(first, files), half_cached(second, files))
        for rule in RULES:
            for source in SOURCES:
                chosen = {
                    "cached": cached,
                    "encode": (first, second),
                    "checkpointed": (first,),
                    "planned": (half_recomputed(first),),
                }
                made[preset, source, rule] = job_of(
                    *chosen[source],
                    preset=preset,
                    weight_rule=rule,
                    # Adam's first steps blow up gradients that are mere rounding to full size.
                    learning_rate=1e-5,
                    checkpointing=source == "checkpointed",
                )
    added = job_of(first, preset="tiny-cogvideox", learning_rate=1e-5)
    for preset in FAMILIES:
        job = job_of(first, preset=preset, learning_rate=1e-5)
        made[preset, "bf16", "clip"] = replace(job, update=UpdateOptions(precision="bf16"))
    model = replace(added.model, overrides={**added.model.overrides, "rotary": False})
    made["tiny-cogvideox", "added positions", "clip"] = replace(added, model=model)
    return made


@pytest.fixture(scope="module")
def replays(jobs):
    once = ("checkpointed", "planned")
    chosen = {key: job for key, job in jobs.items() if key[1] not in once or key[2] == "clip"}
    answers = run_ranks(rank_tasks.train, 4, list(chosen.values()))
    return dict(zip(chosen, answers[0], strict=True))


@pytest.fixture(scope="module")
def sharded_jobs(jobs):
    """FSDP2 on a model of each family: a step of each source; the weights stay as they are."""
    return {
        (preset, rule): replace(
            jobs[preset, "encode", rule],
            iterations=tuple(jobs[preset, source, rule].iterations[0] for source in SHARDED),
            learning_rate=0.0,
            update=UpdateOptions(sharding="fsdp2"),
        )
        for preset in FAMILIES
        for rule in RULES
    }


@pytest.fixture(scope="module")
def sharded_replays(sharded_jobs):
    answers = run_ranks(rank_tasks.train, 4, list(sharded_jobs.values()))
    return dict(zip(sharded_jobs, answers[0], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("preset", FAMILIES)
def test_so_it_is_with_weights_sharded_by_fsdp2(sharded_jobs, sharded_replays, preset, rule):
    losses, gradients, *_ = sharded_replays[preset, rule]
    with torch.random.fork_rng():
        expected = reference.train(sharded_jobs[preset, rule])
    assert losses == pytest.approx(expected[0], rel=1e-6)
    for found, exact in zip(gradients, expected[1], strict=True):
        assert reference.worst_difference(tensors(found), exact) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("source", ["encode", "cached"])
@pytest.mark.parametrize("preset", PRESETS)
def test_loss_and_gradients_equal_those_of_one_process(jobs, replays, preset, source, rule):
    losses, gradients, parameters, report, _ = replays[preset, source, rule]
    with torch.random.fork_rng():
        expected = reference.train(jobs[preset, source, rule])
    assert losses == pytest.approx(expected[0], rel=1e-6)
    for found, exact in zip(gradients, expected[1], strict=True):
        assert reference.worst_difference(tensors(found), exact) < 1e-5
    assert reference.worst_difference(tensors(parameters), expected[2]) < 1e-5
    tasks = {task.task for it in report.iterations[:1] for task in it.tasks}
    assert tasks == ({"denoise"} if source == "cached" else {"encode", "denoise"})


@pytest.mark.slow
def test_so_it_is_where_positions_are_added_to_the_tokens(jobs, replays):
    key = "tiny-cogvideox", "added positions", "clip"
    with torch.random.fork_rng():
        losses, gradients, _ = reference.train(jobs[key])
    assert replays[key][0] == pytest.approx(losses, rel=1e-6)
    assert reference.worst_difference(tensors(replays[key][1][0]), gradients[0]) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("preset", FAMILIES)
def test_bf16_keeps_the_loss_to_a_thousandth_and_the_gradient_to_a_hundredth(replays, preset):
    exact, rounded = replays[preset, "encode", "clip"], replays[preset, "bf16", "clip"]
    assert rounded[0] == pytest.approx(exact[0][:1], rel=1e-3)
    assert rounded[0] != pytest.approx(exact[0][:1], rel=1e-7)
    found, wanted = tensors(rounded[1][0]), tensors(exact[1][0])
    assert all(tensor.dtype == torch.float32 for tensor in found.values())
    away = sum((found[name] - wanted[name]).square().sum() for name in wanted).sqrt()
    whole = sum(tensor.square().sum() for tensor in wanted.values()).sqrt()
    assert away / whole < 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_computing_activations_again_changes_nothing(replays, preset):
    plain, again = replays[preset, "encode", "clip"], replays[preset, "checkpointed", "clip"]
    assert again[0] == pytest.approx(plain[0][:1], rel=1e-6)
    assert reference.worst_difference(tensors(again[1][0]), tensors(plain[1][0])) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("preset", FAMILIES)
def test_nor_does_it_where_the_plan_chooses_task_by_task(replays, preset):
    plain, some = replays[preset, "encode", "clip"], replays[preset, "planned", "clip"]
    assert some[0] == pytest.approx(plain[0][:1], rel=1e-6)
    assert reference.worst_difference(tensors(some[1][0]), tensors(plain[1][0])) < 1e-6
    (step,) = some[3].iterations
    chosen = {task.micro_batch: task.recompute for task in step.tasks if task.task == "denoise"}
    assert chosen == {"a": True, "b": False, "c": True, "d": False}


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
