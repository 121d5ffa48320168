"""Random legal plans: none hangs, and all give the gradient of one process."""

import random

import pytest

from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.pipeline.plan import PipelinePlan
from tests.executor.pipeline import rank_tasks
from tests.executor.pipeline.compare import gradient_error
from tests.executor.pipeline.models import GPT, LLAMA, MIXTRAL, train_whole
from tests.executor.pipeline.random_plans import random_plan
from tests.executor.ranks import run_ranks


def hold_all(spec: DecoderSpec, plans: list[PipelinePlan], ranks: int) -> None:
    found = run_ranks(rank_tasks.train_many, ranks, spec, plans)
    for number, plan in enumerate(plans):
        whole = train_whole(spec, [rank_tasks.batch(spec, plan.samples, 0)])
        mine = [rank[number] for rank in found if rank[number] is not None]
        for loss, _ in mine:
            assert loss == pytest.approx(whole.losses[0], rel=1e-6), plan
        assert gradient_error(spec, [gradients for _, gradients in mine], whole) < 1e-5, plan


def plans_for(spec: DecoderSpec, count: int, devices: int, seed: int) -> list[PipelinePlan]:
    rng = random.Random(seed)
    expert_degrees = (1, 2, 2, 4) if spec.experts else (1,)
    return [
        random_plan(
            rng,
            rows=spec.row_count,
            devices=devices,
            degrees=(1, 2, 4),
            expert_degrees=expert_degrees,
            uneven=number % 3 == 0,
        )
        for number in range(count)
    ]


def test_random_plans_on_four_ranks():
    hold_all(LLAMA, plans_for(LLAMA, 4, 4, seed=5), 4)


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "seed"), [(LLAMA, 21), (GPT, 22), (MIXTRAL, 23)])
def test_random_plans_on_eight_ranks(spec, seed):
    hold_all(spec, plans_for(spec, 34, 8, seed), 8)
