"""Random legal plans: none hangs, and all give the gradient of one process.

``ARACHNE_RANDOM_PLANS=100 pytest -m slow`` on this file tries a hundred of them, for minutes.
"""

import os
import random
from dataclasses import replace

import pytest

from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.pipeline.plan import PipelinePlan
from tests.executor.pipeline import rank_tasks
from tests.executor.pipeline.compare import gradient_error
from tests.executor.pipeline.models import GPT, LLAMA, MIXTRAL, train_whole
from tests.executor.pipeline.random_plans import random_plan
from tests.executor.ranks import run_ranks

# Of the three models together.
COUNT = int(os.environ.get("ARACHNE_RANDOM_PLANS", "12"))
SMALL = [replace(spec, layers=3) for spec in (LLAMA, GPT, MIXTRAL)]


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
    hold_all(SMALL[0], plans_for(SMALL[0], 3, 4, seed=5), 4)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3), ids=[spec.family for spec in SMALL])
def test_random_plans_on_eight_ranks(number):
    spec = SMALL[number]
    hold_all(spec, plans_for(spec, -(-COUNT // 3), 8, seed=21 + number), 8)
