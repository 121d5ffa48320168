"""A plan that arrives during a training is followed from the next step on, with its own groups."""

from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.executor.plan_mail import deliver, plan_fingerprint
from tests.executor.jobs import ODD, WIDE, batch, half_recomputed, iteration_of, job_of
from tests.executor.ranks import run_ranks

BATCHES = (batch("a", ODD), batch("b", WIDE))
ALONE = ((0, 0, (0,), 0), (1, 0, (1,), 0), (0, 1, (0,), 1), (1, 1, (1,), 1))
# Groups that overlap, and a rank that had nothing to do.
TOGETHER = ((0, 0, (2,), 0), (1, 0, (0, 1), 0), (0, 1, (0, 1), 1), (1, 1, (1, 2), 2))


def planned(runs):
    return replace(iteration_of("one", BATCHES, runs, devices=3), plan_id=f"plan-{len(runs[2][2])}")


def follow(rank, job, newer):
    """Groups made and losses: a step by the first plan, then two by one that came meanwhile."""
    from arachne_opt.executor.trainer import CascadeTrainer

    trainer = CascadeTrainer(job)
    steps, made = [], []
    for step in trainer.steps:
        if step == 1 and rank == 0:
            deliver(Path(job.plan_folder), newer)
        steps.append(trainer.train_step(step))
        made.append(trainer.pool.made)
    return made, [s.loss for s in steps], [s.plan_id for s in steps]


@pytest.mark.slow
def test_groups_of_a_plan_that_arrives_are_made_when_it_is_followed(tmp_path):
    job = job_of(planned(ALONE), epochs=3, learning_rate=0.0)
    beside = replace(job, plan_folder=str(tmp_path))
    answers = run_ranks(follow, 3, beside, planned(TOGETHER))
    for made, _, plans in answers:
        assert made == [0, 2, 2]
        assert plans == ["plan-1", "plan-2", "plan-2"]
    (tmp_path / "none").mkdir()
    alone = run_ranks(
        follow, 3, replace(beside, plan_folder=str(tmp_path / "none")), planned(ALONE)
    )
    assert answers[0][1] == pytest.approx(alone[0][1], rel=1e-6)


def test_what_is_computed_again_is_part_of_what_the_ranks_compare():
    plain = planned(TOGETHER)
    assert plan_fingerprint(half_recomputed(plain)) != plan_fingerprint(plain)
