"""However gradients, moments and weights are shared out, the training is that of one process."""

import math

import pytest
import torch

from arachne_opt.errors import InputError
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions
from arachne_opt.executor.schedule import learning_rate
from tests.executor import rank_tasks, reference, trainings
from tests.executor.jobs import job_of, mixed_iterations
from tests.executor.ranks import run_ranks

SHARDINGS = ("replicated", "zero1", "fsdp2")
EVERYTHING = {"schedule": "cosine", "warmup_steps": 2, "clip_norm": 0.05, "ema_decay": 0.8}


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def whole_difference(found, wanted):
    """Difference of all tensors as one vector, relative to its norm."""
    rows = [(found[name] - wanted[name], wanted[name]) for name in wanted]
    return (sum(d.square().sum() for d, _ in rows) / sum(w.square().sum() for _, w in rows)).sqrt()


def mixed_job(preset, rule, **update):
    first, second = mixed_iterations()
    return job_of(
        first,
        second,
        preset=preset,
        weight_rule=rule,
        learning_rate=1e-3,
        update=UpdateOptions(**update),
    )


def one_process(job):
    """The reference with clipping, schedule and average, in plain torch."""
    torch.set_num_threads(1)  # more of them only get in each other's way here
    reference_model = reference.MODELS[job.model.preset](job.model)
    model = reference_model.module
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=job.weight_decay)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    options, latents = job.update, {}
    for step in range(job.steps):
        optimizer.zero_grad()
        parts = reference.clip_loss(job, step, reference_model, latents)
        sum(share * error for share, error in parts).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
        assert norm > options.clip_norm
        warm = (step + 1) / options.warmup_steps
        late = (step - options.warmup_steps) / max(1, job.steps - options.warmup_steps)
        scale = warm if step < options.warmup_steps else (1 + math.cos(math.pi * late)) / 2
        optimizer.param_groups[0]["lr"] = job.learning_rate * scale
        optimizer.step()
        for name, p in model.named_parameters():
            average[name] += (1 - options.ema_decay) * (p.detach() - average[name])
    return {name: p.detach() for name, p in model.named_parameters()}, average


@pytest.fixture(scope="module")
def references():
    """Of one process, per model and rule; made when asked for."""
    made = {}

    def of(preset, rule):
        if (preset, rule) not in made:
            with torch.random.fork_rng():
                made[preset, rule] = reference.train(mixed_job(preset, rule))
        return made[preset, rule]

    return of


@pytest.fixture(scope="module")
def matrix():
    """All ways on 4 ranks, from one launch."""
    jobs = {
        (preset, rule, sharding, precision): mixed_job(
            preset, rule, sharding=sharding, precision=precision
        )
        for preset in ("toy", "tiny-wan")
        for rule in ("clip", "token")
        for sharding in SHARDINGS
        for precision in ("fp32", "bf16")
        if precision == "fp32" or rule == "clip"
    }
    answers = run_ranks(rank_tasks.train, 4, list(jobs.values()))[0]
    return dict(zip(jobs, answers, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("rule", ["clip", "token"])
@pytest.mark.parametrize("preset", ["toy", "tiny-wan"])
def test_every_sharding_gives_the_losses_gradients_and_weights_of_one_process(
    matrix, references, preset, rule, sharding
):
    losses, gradients, parameters, _, _ = matrix[preset, rule, sharding, "fp32"]
    wanted_losses, wanted_gradients, wanted = references(preset, rule)
    assert losses == pytest.approx(wanted_losses, rel=1e-6)
    for found, gradient in zip(gradients, wanted_gradients, strict=True):
        assert reference.worst_difference(tensors(found), gradient) < 1e-5
    assert reference.worst_difference(tensors(parameters), wanted) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("preset", ["toy", "tiny-wan"])
def test_bf16_keeps_the_loss_to_a_thousandth_and_the_gradient_to_a_hundredth(
    matrix, references, preset, sharding
):
    losses, gradients, parameters, _, _ = matrix[preset, "clip", sharding, "bf16"]
    wanted_losses, wanted_gradients, wanted = references(preset, "clip")
    assert losses == pytest.approx(wanted_losses, rel=1e-3)
    assert losses != pytest.approx(wanted_losses, rel=1e-6)
    for found, gradient in zip(gradients, wanted_gradients, strict=True):
        assert all(array.dtype == "float32" for array in found.values())
        assert whole_difference(tensors(found), gradient) < 1e-2
    assert all(array.dtype == "float32" for array in parameters.values())
    assert whole_difference(tensors(parameters), wanted) < 1e-2


@pytest.mark.parametrize(
    "sharding", ["zero1", *(pytest.param(s, marks=pytest.mark.slow) for s in SHARDINGS[::2])]
)
def test_clipping_schedule_and_average_are_those_of_one_process(sharding):
    job = mixed_job("toy", "clip", sharding=sharding, **EVERYTHING)
    _, weights, average, _ = run_ranks(trainings.train_for, 4, job)[0]
    with torch.random.fork_rng():
        wanted, wanted_average = one_process(job)
    assert reference.worst_difference(tensors(weights), wanted) < 1e-5
    assert reference.worst_difference(tensors(average), wanted_average) < 1e-5


def test_small_buckets_uneven_shards_and_early_sums_change_nothing():
    answers = run_ranks(rank_tasks.sum_in_small_buckets, 3)
    for rank, (early, whole, parts) in enumerate(answers):
        # Rank 2 had no backward at all; the others began all sums inside their last one.
        assert early == (0 if rank == 2 else 3)
        assert whole == [13.0, 13.0, 13.0]
        # 4, 3 and 1 values in parts of 2, 1 and 1; what is left over is padding.
        sizes = ((2, 1, 1), (2, 1, 0), (0, 1, 0))[rank]
        a, b, c = sizes
        assert parts == [*[13.0] * a, *[0.0] * (2 - a), *[13.0] * b, *[13.0] * c, *[0.0] * (1 - c)]


@pytest.mark.slow
def test_a_loop_of_ones_own_needs_whole_gradients():
    with pytest.raises(AssertionError, match="with zero1 no rank holds the whole gradient"):
        run_ranks(rank_tasks.backward_only, 2, mixed_two_ranks("zero1"))
    norms = run_ranks(rank_tasks.backward_only, 2, mixed_two_ranks("replicated"))
    assert norms[0] == norms[1] > 0


def mixed_two_ranks(sharding):
    return trainings.epoch_job(2, update=UpdateOptions(sharding=sharding))


def test_the_learning_rate_warms_up_and_falls():
    warm = UpdateOptions(warmup_steps=4)
    assert [learning_rate(1.0, s, 10, warm) for s in (0, 1, 3, 4, 9)] == [0.25, 0.5, 1, 1, 1]
    cosine = UpdateOptions(schedule="cosine", warmup_steps=2)
    rates = [learning_rate(2.0, s, 10, cosine) for s in range(12)]
    assert rates[:3] == [1.0, 2.0, 2.0]
    assert rates[6] == pytest.approx(1.0)
    assert rates[2:11] == sorted(rates[2:11], reverse=True)
    assert rates[10] == rates[11] == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UpdateOptions(sharding="zero3"), "unknown sharding 'zero3'; try one of"),
        (lambda: UpdateOptions(precision="fp16"), "unknown precision"),
        (lambda: UpdateOptions(ema_decay=1.0), "a share below 1"),
        (lambda: UpdateOptions(clip_norm=-1), "must not be negative"),
        (lambda: CheckpointOptions(every=5), "checkpoints need a folder"),
        (lambda: CheckpointOptions(folder="x", keep=0), "at least 1 of them"),
    ],
)
def test_options_that_make_no_sense_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
