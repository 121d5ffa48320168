"""Files that turn out bad while training: named, counted, without weight, the same on all ranks."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from arachne_opt.errors import InputError
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.pixel_files import check_files
from arachne_opt.executor.prefetch import Prefetch
from arachne_opt.executor.samples import Request, SampleReader
from arachne_opt.workload import Clip, MicroBatch
from tests.executor import rank_tasks, reference
from tests.executor.jobs import ODD, SMALL, batch, iteration_of, job_of
from tests.executor.ranks import run_ranks

CONFIG = ModelChoice(preset="toy").config()
RUNS = ((0, 0, (0,), 0), (1, 0, (1,), 0), (0, 1, (0, 1), 1), (1, 1, (1,), 2))


def bad_file(folder):
    """The right kind of file with the wrong numbers inside."""
    np.save(folder / "bad.npy", np.zeros((1, 32, 48, 3)))
    return str(folder / "bad.npy")


def job_with_bad_clip(folder, **fields):
    good = batch("a", ODD, 2)
    mixed = batch("b", SMALL, 3)
    clips = (*mixed.clips[:2], Clip(id="bad", shape=SMALL, text_tokens=4, path=bad_file(folder)))
    broken = MicroBatch(id="b", shape=SMALL, clips=clips)
    return job_of(iteration_of("it", (good, broken), RUNS, devices=2), **fields)


@pytest.mark.parametrize("rule", ["clip", "token"])
def test_the_others_share_the_weight_of_a_clip_that_cannot_be_read(tmp_path, rule):
    job = job_with_bad_clip(tmp_path, weight_rule=rule, epochs=2, learning_rate=1e-3)
    ranks = run_ranks(rank_tasks.train, 2, [job])
    losses, gradients, _, report, _ = ranks[0][0]
    with torch.random.fork_rng():
        wanted = reference.train(job, left_out={"bad"})
    assert losses == pytest.approx(wanted[0], rel=1e-6)
    for found, exact in zip(gradients, wanted[1], strict=True):
        found = {name: torch.from_numpy(array) for name, array in found.items()}
        assert reference.worst_difference(found, exact) < 1e-5
    for iteration in report.iterations:
        ((clip, why),) = iteration.left_out
        assert clip == "bad"
        assert "holds float64" in why
    # Rank 0 never reads the clip; it leaves it out all the same.
    assert ranks[1][0][3].iterations[0].left_out == report.iterations[0].left_out


def test_a_run_without_any_readable_clip_stops(tmp_path):
    path = bad_file(tmp_path)
    only = MicroBatch(id="a", shape=SMALL, clips=(Clip(id="bad", shape=SMALL, path=path),))
    job = job_of(iteration_of("it", (only,), ((0, 0, (0,), 0), (0, 1, (0, 1), 1)), devices=2))
    with pytest.raises(AssertionError, match="iteration it: no clip can be read"):
        run_ranks(rank_tasks.train, 2, [job])


def test_reading_ahead_keeps_what_is_asked_for_and_forgets_the_rest():
    read = []

    def load(name):
        read.append(name)
        if name == "bad":
            raise InputError("broken")
        return name.upper()

    ahead = Prefetch(load)
    assert ahead.collect(["a", "bad"], ["c", "d"]) == {"bad": "broken"}
    assert ahead.take("a") == "A"
    assert ahead.collect(["c", "a"], []) == {}
    assert (ahead.take("c"), ahead.take("a")) == ("C", "A")
    assert sorted(read) == ["a", "a", "bad", "c", "d"]


def latents(folder, **tensors):
    save_file(tensors, folder / "z.safetensors")
    return Clip(id="z", shape=ODD, latents=str(folder / "z.safetensors"))


def request(clip, kind, **fields):
    return Request(kind=kind, clip=clip, shape=ODD, **fields)


def test_a_rank_reads_only_the_latent_frames_of_its_tokens(tmp_path):
    whole = torch.randn(4, 3, 6, 10)
    found = SampleReader(CONFIG).read(
        request(latents(tmp_path, latents=whole), "latents", first=1, last=3)
    )
    assert torch.equal(found, whole[:, 1:3])


@pytest.mark.parametrize(
    ("tensors", "kind", "message"),
    [
        (
            {"latents": torch.zeros(4, 2, 6, 10)},
            "latents",
            r"are \(4, 2, 6, 10\), clips of .* need",
        ),
        ({"other": torch.zeros(1)}, "latents", "cannot read"),
        ({"latents": torch.full((4, 3, 6, 10), torch.nan)}, "latents", "not finite"),
        (
            {"text": torch.zeros(5, 3)},
            "embeddings",
            r"'text' is \(5, 3\), .* takes \(5, 16\)",
        ),
    ],
)
def test_latents_that_are_not_the_models_are_named(tmp_path, tensors, kind, message):
    clip = latents(tmp_path, **tensors)
    with pytest.raises(InputError, match=message):
        SampleReader(CONFIG).read(request(clip, kind, last=3))


def test_latents_of_another_shape_are_refused_before_the_run(tmp_path):
    clip = latents(tmp_path, latents=torch.zeros(4, 2, 6, 10))
    batches = (MicroBatch(id="b", shape=ODD, clips=(clip,)),)
    with pytest.raises(InputError, match=r"\(4, 2, 6, 10\), clips of 9x48x80 need \(4, 3, 6, 10\)"):
        check_files(batches, CONFIG)
    missing = Clip(id="z", shape=ODD, latents=str(tmp_path / "no.safetensors"))
    with pytest.raises(InputError, match="does not exist"):
        check_files((MicroBatch(id="b", shape=ODD, clips=(missing,)),), CONFIG)
    # What is damaged inside is for the run to leave out.
    (tmp_path / "z.safetensors").write_bytes(b"1234")
    check_files(batches, CONFIG)
