"""Whatever the plan, losses, gradients and updates are those of one process."""

from dataclasses import replace

import pytest

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.executor.pipeline.uniform import Engine, refuse_engine, why_not_torch
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan
from arachne_opt.pipeline.problem import Schedule
from tests.executor.pipeline import rank_tasks
from tests.executor.pipeline.compare import gradient_error, weight_error
from tests.executor.pipeline.models import GPT, LLAMA, MIXTRAL, train_whole
from tests.executor.pipeline.random_plans import plan_of, stage
from tests.executor.ranks import run_ranks

RATE = 1e-3


def hold_against_one_process(
    spec: DecoderSpec, plan: PipelinePlan, ranks: int, steps: int = 5, **options
) -> None:
    batches = [rank_tasks.batch(spec, plan.samples, step) for step in range(steps)]
    known = {k: v for k, v in options.items() if k in ("clip_norm", "balance")}
    whole = train_whole(spec, batches, learning_rate=RATE, **known)
    found = run_ranks(_train, ranks, spec, plan, steps, options)
    for one in found:
        assert one["losses"] == pytest.approx(whole.losses, rel=1e-6)
        assert min(one["norms"]) > options.get("clip_norm", 0.0), "nothing was clipped"
    assert gradient_error(spec, [one["gradients"] for one in found], whole) < 1e-5
    assert weight_error(found, whole) < 2e-5


def _train(rank, spec, plan, steps, options):
    return rank_tasks.train(rank, spec, plan, steps, RATE, **options)


def chain(*stages, microbatch=2, microbatches=4) -> Pipeline:
    return Pipeline(microbatch=microbatch, microbatches=microbatches, stages=stages)


FOUR = {
    "uneven layers, tp 1 beside tp 2": (
        LLAMA,
        plan_of(chain(stage(0, 2, 1), stage(2, 3, 2), stage(3, 8, 1))),
    ),
    "dp 2 beside dp 1, recomputed": (
        LLAMA,
        plan_of(chain(stage(0, 5, 1, 1, recompute=True), stage(5, 8, 2)), zero1=True),
    ),
    "two pipelines with different cuts, tied weights": (
        GPT,
        plan_of(
            chain(stage(0, 3, 1), stage(3, 8, 1), microbatches=5),
            chain(stage(0, 6, 1), stage(6, 8, 1), microbatch=3, microbatches=2),
        ),
    ),
    "experts over two replicas": (
        MIXTRAL,
        plan_of(chain(stage(0, 2, 1, 1, ep=2), stage(2, 6, 1, 1, ep=2), microbatch=1)),
    ),
}


SLOW = ("dp 2 beside dp 1, recomputed", "experts over two replicas")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in FOUR]
)
def test_four_ranks(name):
    hold_against_one_process(*FOUR[name], 4)


EIGHT = {
    "three types of stage, experts and tp": (
        MIXTRAL,
        plan_of(
            chain(
                stage(0, 2, 2, 2, ep=2),
                stage(2, 5, 1, 1, ep=2, recompute=True),
                stage(5, 6, 1, 1),
                microbatch=2,
                microbatches=3,
            ),
            zero1=True,
        ),
    ),
    "two pipelines, unequal in everything": (
        LLAMA,
        plan_of(
            chain(stage(0, 1, 1), stage(1, 4, 1, 1), stage(4, 8, 1), microbatch=4),
            chain(stage(0, 5, 2), stage(5, 8, 1, 1), microbatch=2, microbatches=3),
            zero1=True,
        ),
    ),
    "keys shared by neighbours, a vocabulary that tp does not divide": (
        LLAMA,
        plan_of(chain(stage(0, 3, 4), stage(3, 6, 2), stage(6, 8, 1, 1), microbatches=3)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EIGHT)
def test_eight_ranks(name):
    hold_against_one_process(*EIGHT[name], 8, clip_norm=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", list(Schedule))
def test_torch_runs_uniform_stages(schedule):
    """Two pipelines of two stages; interleaved ones hold rows 0, 1, 4, 5 and 2, 3, 6, 7."""
    pipeline = chain(stage(0, 4, 1), stage(4, 8, 1))
    plan = plan_of(pipeline, replace(pipeline, microbatches=2), zero1=True)
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    options = {"engine": Engine.TORCH, "schedule": schedule, "chunks": chunks}
    hold_against_one_process(GPT, plan, 4, steps=2, **options)


@pytest.mark.parametrize(
    ("stages", "microbatches", "why"),
    [
        ((stage(0, 8, 1),), 4, "has one stage"),
        ((stage(0, 4, 1), stage(4, 8, 2)), 4, "has stages of unlike replicas"),
        ((stage(0, 4, 1, 1), stage(4, 8, 1)), 4, "has stages of unlike replicas"),
        ((stage(0, 4, 1), stage(4, 8, 1)), 1, "has fewer micro-batches than stages"),
    ],
)
def test_what_torch_cannot_run_is_said(stages, microbatches, why):
    layout = Layout(plan_of(chain(*stages, microbatches=microbatches)))
    assert why in (why_not_torch(layout, Schedule.ONE_F_ONE_B) or "")


def test_interleaved_stages_need_torch():
    plan = plan_of(chain(stage(0, 4, 1), stage(4, 8, 1)))
    with pytest.raises(InputError, match="only torch's engine interleaves"):
        refuse_engine(Layout(plan, 2), Engine.TABLES, Schedule.INTERLEAVED)
    with pytest.raises(InputError, match="2 chunks with schedule gpipe"):
        refuse_engine(Layout(plan, 2), Engine.TORCH, Schedule.GPIPE)


@pytest.mark.slow
def test_balance_of_experts_counts_once_per_token():
    spec, plan = FOUR["experts over two replicas"]
    hold_against_one_process(spec, plan, 4, steps=2, balance=0.01)
