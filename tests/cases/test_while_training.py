"""Ten reports of other trainers' users as tests, part two: on four real processes.

All are replayed in one launch, and each is held against one process.
"""

import pytest
import torch

from arachne_opt.workload import Shape
from tests.executor import rank_tasks, reference
from tests.executor.jobs import ODD, SMALL, WIDE, batch, iteration_of, job_of
from tests.executor.ranks import run_ranks

pytestmark = pytest.mark.slow

# 81 frames are 21 latent ones; 21 x 3 x 3 tokens, which neither 2 nor 4 divides.
FRAMES_81 = Shape(frames=81, height=48, width=48)
ALL = (0, 1, 2, 3)


def one_on(group: tuple[int, ...], shape: Shape = ODD):
    """An iteration of one micro-batch whose tasks both run on a group."""
    rows = (batch(f"one-{shape}", shape, 2),)
    return iteration_of("one", rows, ((0, 0, group, 0), (0, 1, group, 1)))


def unlike_buckets():
    """A video on two ranks beside images on another and a short clip on the last."""
    rows = (batch("video", ODD), batch("images", SMALL, 3), batch("short", WIDE))
    groups = ((0, 1), (2,), (3,))
    return iteration_of("unlike", rows, both_tasks(groups))


def unequal_counts():
    """Five micro-batches on rank 0, one on rank 1, none on rank 2, one on rank 3."""
    rows = tuple(batch(f"small{i}", SMALL) for i in range(7))
    runs = [(i, t, (0,), 2 * i + t) for i in range(5) for t in (0, 1)]
    runs += [(5, 0, (1,), 0), (5, 1, (1,), 1), (6, 0, (3,), 0), (6, 1, (3,), 1)]
    return iteration_of("unequal", rows, in_time(runs))


def overlapping_groups():
    """Groups that share ranks, used a different number of times each."""
    rows = tuple(batch(f"odd{i}", ODD) for i in range(5))
    groups = ((0, 1), (1, 2), (2, 3), (1, 2), (0, 1, 2, 3))
    runs = [(i, t, g, 2 * i + t) for i, g in enumerate(groups) for t in (0, 1)]
    return iteration_of("overlapping", rows, in_time(runs))


def both_tasks(groups):
    runs = [(i, t, g, t) for i, g in enumerate(groups) for t in (0, 1)]
    return in_time(runs)


def in_time(runs):
    return tuple(sorted(runs, key=lambda run: run[3]))


CASES = {
    "unlike": unlike_buckets(),
    "degree 1": one_on((0,)),
    "degree 2": one_on((1, 2)),
    "degree 4": one_on(ALL),
    "frames on 2": one_on((0, 3), FRAMES_81),
    "frames on 4": one_on(ALL, FRAMES_81),
    "unequal": unequal_counts(),
    "overlapping": overlapping_groups(),
}


@pytest.fixture(scope="module")
def replayed():
    """Loss and gradients of each case, of the ranks and of one process."""
    job = job_of(*CASES.values(), learning_rate=0.0, weight_decay=0.0)
    losses, gradients, *_ = run_ranks(rank_tasks.train, 4, [job])[0][0]
    with torch.random.fork_rng():
        wanted_losses, wanted_gradients, _ = reference.train(job)
    found = ({n: torch.from_numpy(a) for n, a in g.items()} for g in gradients)
    rows = zip(losses, found, wanted_losses, wanted_gradients, strict=True)
    return dict(zip(CASES, rows, strict=True))


def assert_exact(case) -> None:
    loss, gradient, wanted_loss, wanted = case
    assert loss == pytest.approx(wanted_loss, rel=1e-6)
    assert reference.worst_difference(gradient, wanted) < 1e-5
    assert any(value.abs().max() > 0 for value in gradient.values())


def test_unlike_buckets_on_the_ranks_give_the_gradient_of_the_whole_batch(replayed):
    """Symptom: ranks average over their own clips, so that images count more than videos."""
    assert_exact(replayed["unlike"])


def test_the_scale_of_gradients_does_not_depend_on_the_degree(replayed):
    """Symptom: with sequence parallelism gradients are too small by the degree, or too large."""
    norms = []
    for degree in (1, 2, 4):
        case = replayed[f"degree {degree}"]
        assert_exact(case)
        norms.append(torch.stack([g.norm() for g in case[1].values()]).norm().item())
    # The noise is that of clip and step: the steps of the cases differ, the references tell it.
    assert max(norms) < 2 * min(norms)


@pytest.mark.parametrize("degree", [2, 4])
def test_21_latent_frames_run_on_degrees_that_do_not_divide_them(replayed, degree):
    """Symptom: "sequence length 21 is not divisible by 4", or padding that changes the loss."""
    assert_exact(replayed[f"frames on {degree}"])


def test_ranks_with_unequal_numbers_of_tasks_do_not_wait_for_each_other(replayed):
    """Symptom: NCCL hangs as soon as a rank has run out of batches."""
    assert_exact(replayed["unequal"])


def test_overlapping_groups_with_unequal_counts_do_not_hang(replayed):
    """Symptom: a deadlock between collectives of groups that share ranks."""
    assert_exact(replayed["overlapping"])
