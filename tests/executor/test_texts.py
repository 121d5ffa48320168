"""Texts encoded by a task of the plan give what embeddings from files give, and one process."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from arachne_opt.cascade.plan import Placement
from arachne_opt.cascade.problem import Cascade
from arachne_opt.errors import InputError, MissingDependencyError, RunError
from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.adapters.text import TextModel
from arachne_opt.executor.emulation import emulated_job
from arachne_opt.executor.job import ReplayIteration
from arachne_opt.executor.job_json import job_from_json, job_to_json
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.workload import Iteration
from tests.executor import rank_tasks, reference
from tests.executor.jobs import TASK_US, job_of, mixed_iterations
from tests.executor.ranks import run_ranks
from tests.strategies import simple_task

pytest.importorskip("transformers")

PRESETS = ("tiny-wan", "tiny-cogvideox", "tiny-hunyuan-video")
# Groups of the text tasks: alone, of ranks that denoise and others, wider than the clips.
GROUPS = ((3,), (1, 2), (0, 2, 3), (2, 3))


def captioned(iteration):
    """Clips with captions, of which the runtime has no embeddings."""
    batches = tuple(
        replace(
            b,
            clips=tuple(
                replace(c, caption=f"a cat on {c.id}"[: 9 + i]) for i, c in enumerate(b.clips)
            ),
        )
        for b in iteration.batches.micro_batches
    )
    return replace(iteration, batches=Iteration(name=iteration.name, micro_batches=batches))


def with_texts(iteration):
    """The plan with a text task before everything else of each cascade, in a slot of its own."""
    text = simple_task("text", dict.fromkeys(range(1, 5), TASK_US))
    cascades = tuple(
        Cascade(
            id=c.id,
            tasks=(text, c.tasks[0], replace(c.tasks[1], predecessors=(0, 1))),
        )
        for c in iteration.problem.cascades
    )
    count = len(cascades)
    moved = [
        replace(
            p,
            task=p.task + 1,
            start_us=p.start_us + count * TASK_US,
            end_us=p.end_us + count * TASK_US,
        )
        for p in iteration.plan.placements
    ]
    first = [
        Placement(
            cascade=c, task=0, devices=GROUPS[c], start_us=c * TASK_US, end_us=(c + 1) * TASK_US
        )
        for c in range(count)
    ]
    return ReplayIteration(
        batches=iteration.batches,
        problem=replace(iteration.problem, cascades=cascades),
        plan=replace(iteration.plan, placements=(*first, *moved)),
    )


def with_files(iteration, adapter, folder):
    """The iteration with the embeddings of every clip in a file, frames still to be encoded."""

    def kept(clip):
        path = folder / f"{clip.id}.safetensors"
        found = adapter.encode_text(clip.caption)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, path)
        return replace(clip, embeddings=str(path))

    batches = tuple(
        replace(b, clips=tuple(map(kept, b.clips))) for b in iteration.batches.micro_batches
    )
    return replace(iteration, batches=Iteration(name=iteration.name, micro_batches=batches))


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    torch.set_num_threads(1)
    made = {}
    plain = captioned(mixed_iterations()[0])
    for preset in PRESETS:
        job = job_of(plain, preset=preset, learning_rate=1e-5)
        adapter = build_adapter(job.model, torch.device("cpu"))
        files = with_files(plain, adapter, tmp_path_factory.mktemp(preset))
        made[preset, "files"] = replace(job, iterations=(files,))
        made[preset, "task"] = replace(job, iterations=(with_texts(plain),))
        made[preset, "stand-ins"] = job
    return made


@pytest.fixture(scope="module")
def replays(jobs):
    answers = run_ranks(rank_tasks.train, 4, list(jobs.values()))
    return dict(zip(jobs, answers[0], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_text_tasks_and_files_of_embeddings_give_what_one_process_does(jobs, replays, preset):
    with torch.random.fork_rng():
        losses, gradients, _ = reference.train(jobs[preset, "files"])
    for source in ("files", "task"):
        found = replays[preset, source]
        assert found[0] == pytest.approx(losses, rel=1e-6)
        grads = {name: torch.from_numpy(array) for name, array in found[1][0].items()}
        assert reference.worst_difference(grads, gradients[0]) < 1e-5
    assert replays[preset, "stand-ins"][0] != pytest.approx(losses, rel=1e-4)
    (step,) = replays[preset, "task"][3].iterations
    assert sum(task.task == "text" for task in step.tasks) == 4


def test_a_job_with_text_tasks_or_embeddings_survives_json():
    plain = captioned(mixed_iterations()[0])
    embedded = tuple(
        replace(b, clips=tuple(replace(c, embeddings=f"{c.id}.parquet") for c in b.clips))
        for b in plain.batches.micro_batches
    )
    filed = replace(plain, batches=Iteration(name=plain.name, micro_batches=embedded))
    for iteration in (with_texts(plain), filed):
        job = job_of(iteration)
        assert job_from_json(job_to_json(job)) == job


def test_random_weights_are_those_of_the_seed_and_texts_do_not_depend_on_others():
    adapter = build_adapter(ModelChoice(preset="tiny-wan", seed=3), torch.device("cpu"))
    again = build_adapter(ModelChoice(preset="tiny-wan", seed=3), torch.device("cpu"))
    first, second = adapter.encode_text("a dog"), again.encode_text("a dog")
    assert first["text"].shape == (6, 16)  # five bytes and an end
    assert torch.equal(first["text"], second["text"])
    assert not torch.equal(first["text"], adapter.encode_text("a cat")["text"])
    long = adapter.encode_text("x" * 100)["text"]
    assert long.shape == (16, 16)


def test_a_text_encoder_is_read_from_a_checkpoint(tmp_path):
    transformers = pytest.importorskip("transformers")
    random = TextModel(ModelChoice(preset="tiny-wan", seed=5), "UMT5EncoderModel", 16)
    random.model.save_pretrained(tmp_path / "text_encoder")
    choice = ModelChoice(preset="tiny-wan", checkpoint=str(tmp_path))
    with pytest.raises(InputError, match="cannot load the tokenizer"):
        TextModel(choice, "UMT5EncoderModel", 16)
    transformers.ByT5Tokenizer().save_pretrained(tmp_path / "tokenizer")
    kept = TextModel(choice, "UMT5EncoderModel", 16)
    given, mask = kept("a dog", 9)
    wanted, own_mask = random("a dog", 9)
    # ByT5 numbers bytes as our stand-in does.
    assert torch.equal(mask, own_mask)
    assert torch.equal(given.last_hidden_state, wanted.last_hidden_state)
    with pytest.raises(InputError, match="no text encoder"):
        TextModel(choice, "CLIPTextModel", 16, "_2")


def test_models_without_a_text_encoder_say_so(monkeypatch):
    adapter = build_adapter(ModelChoice(preset="toy"), torch.device("cpu"))
    with pytest.raises(RunError, match="ToyAdapter has no text encoder"):
        adapter.encode_text("a dog")
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    adapter = build_adapter(ModelChoice(preset="tiny-wan"), torch.device("cpu"))
    with pytest.raises(MissingDependencyError, match="encoded with transformers"):
        adapter.encode_text("a dog")


def test_tasks_in_another_order_are_refused():
    iteration = with_texts(captioned(mixed_iterations()[0]))
    cascades = list(iteration.problem.cascades)
    text, encode, denoise = cascades[0].tasks
    cascades[0] = replace(cascades[0], tasks=(text, encode, replace(denoise, predecessors=(1,))))
    problem = replace(iteration.problem, cascades=tuple(cascades))
    with pytest.raises(InputError, match="text beside encode or not"):
        replace(iteration, problem=problem)


def emulate(rank, job):
    from arachne_opt.executor.trainer import CascadeTrainer

    return CascadeTrainer(job).run()


@pytest.mark.slow
def test_text_tasks_are_rehearsed():
    iteration = with_texts(captioned(mixed_iterations()[0]))
    job = emulated_job("toy", [iteration.problem], [iteration.plan], speed=20)
    report = run_ranks(emulate, 4, job)[0]
    tasks = report.iterations[0].tasks
    assert [task.task for task in tasks[:4]] == ["text"] * 4
    assert report.iterations[0].measured_us > iteration.plan.makespan_us / 20
