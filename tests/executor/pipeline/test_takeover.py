"""Another plan goes on where one stopped: weights, moments and position are the same to the bit."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from arachne_opt.executor.pipeline.checkpoint import load_checkpoint, save_checkpoint
from arachne_opt.executor.pipeline.models.parameters import row_parameters
from arachne_opt.executor.pipeline.takeover import move_to
from arachne_opt.executor.pipeline.training import PipelineTraining, TrainingOptions
from arachne_opt.pipeline.holdings import holdings, settle
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline
from arachne_opt.pipeline.relayout import price_relayout
from tests.executor.pipeline import rank_tasks
from tests.executor.pipeline.compare import where
from tests.executor.pipeline.exact_tables import SPEC, exact_problem
from tests.executor.pipeline.models import train_whole
from tests.executor.pipeline.random_plans import plan_of, stage
from tests.executor.ranks import run_ranks

RATE = 1e-3
NODES = (("A100-40", 0),) * 4 + (("A100-40", 1),) * 4


def chain(*stages, microbatch=2, microbatches=2) -> Pipeline:
    return Pipeline(microbatch=microbatch, microbatches=microbatches, stages=stages)


# 8, 4 and 6 ranks, with other cuts, degrees, replicas and sharing of the optimizer state each time.
PLANS = tuple(
    place(exact_problem(), plan)
    for plan in (
        plan_of(chain(stage(0, 3, 2, 2, ep=2), stage(3, 5, 1, 1), stage(5, 6, 2)), zero1=True),
        plan_of(chain(stage(0, 4, 1, 1, ep=2), stage(4, 6, 2), microbatch=3)),
        plan_of(
            chain(stage(0, 6, 2), microbatches=1),
            chain(stage(0, 2, 2), stage(2, 6, 2)),
            zero1=True,
        ),
    )
)


def everything(training: PipelineTraining) -> tuple | None:
    """Position, steps and all state that a rank holds."""
    if not training.takes_part:
        return None
    pieces = [
        (f"{tuple(p.key)} {name}", p.box, t.view(p.shape).clone().numpy())
        for p in training.update.pieces()
        for name, t in p.tensors.items()
    ]
    pieces += [(f"{key} weight", box, values) for key, box, values in rank_tasks.weights(training)]
    return training.position, training.update.steps, pieces


def go_on(rank: int, dtype: torch.dtype) -> list:
    samples, found = rank_tasks.SeededSamples(SPEC.vocabulary), []
    training = PipelineTraining(SPEC, PLANS[0], samples, TrainingOptions(dtype=dtype))
    for number, plan in enumerate(PLANS):
        moved = None
        if number:
            training, moved = move_to(training, plan, NODES)
        before = everything(training)
        losses = [training.step(RATE).loss for _ in range(2)] if training.takes_part else []
        found.append((moved, before, losses, everything(training)))
    return found


def whole(model_state: list) -> dict[str, dict]:
    """State of all ranks by name: every value once, and equal wherever it is held."""
    shapes = {
        f"{(row, p.name)} {kind}": p.shape
        for row in range(SPEC.row_count)
        for p in row_parameters(SPEC, row)
        for kind in ("weight", "value", "exp_avg", "exp_avg_sq")
    }
    found = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
    for _, _, pieces in (s for s in model_state if s is not None):
        for name, box, values in pieces:
            part = found[name][where(box)]
            known = ~np.isnan(part)
            assert (part[known] == values[known]).all(), name
            part[...] = values
    assert not any(np.isnan(v).any() for v in found.values())
    return found


@pytest.mark.slow
def test_state_moves_between_ranks_of_8_then_4_then_6():
    found = run_ranks(go_on, 8, torch.float32)
    by_plan = list(zip(*found, strict=True))
    for old, new in pairwise(by_plan):
        left, begun = whole([r[3] for r in old]), whole([r[1] for r in new])
        assert all((left[name] == begun[name]).all() for name in left)
        positions = {r[1][:2] for r in new if r[1]} | {r[3][:2] for r in old if r[3]}
        assert len(positions) == 1
    moved = [(r[0][0].network_bytes, r[0][0].inside_bytes) for r in by_plan[1:]]
    assert moved == planned_bytes()
    assert all(network > 0 and inside > 0 for network, inside in moved)
    sizes = [plan.samples for plan in PLANS for _ in range(2)]
    losses = [next(r[2] for r in ranks if r[2]) for ranks in by_plan]
    batches, first = [], 0
    for count in sizes:
        samples = rank_tasks.SeededSamples(SPEC.vocabulary)
        batches.append(samples(range(first, first + count)))
        first += count
    expected = train_whole(SPEC, batches, learning_rate=RATE).losses
    assert [loss for pair in losses for loss in pair] == pytest.approx(expected, rel=1e-5)


SEATS = (tuple(range(8)), (6, 2, 5, 0), (1, 0, 2, 4, 7, 3))


def keep_and_load(rank: int, folder: str) -> list:
    samples, found = rank_tasks.SeededSamples(SPEC.vocabulary), []
    for number, (plan, places) in enumerate(zip(PLANS, SEATS, strict=True)):
        options = TrainingOptions(seed=number)
        training = PipelineTraining(SPEC, plan, samples, options, seats=places)
        if not training.takes_part:
            found.append((None, None))
            continue
        assert load_checkpoint(training, Path(folder)) is (number > 0)
        before = everything(training)
        training.step(RATE)
        save_checkpoint(training, Path(folder), keep=1)
        found.append((before, everything(training)))
    return found


def planned_bytes() -> list[tuple[float, float]]:
    """The planner's estimate of each change of plans: over the network, and inside nodes."""
    held, found = holdings(PLANS[0]), []
    for plan in PLANS[1:]:
        price = price_relayout(exact_problem(), held, plan)
        found.append((price.network_bytes, price.inside_bytes))
        held = settle(held, plan)
    return found


@pytest.mark.slow
def test_a_checkpoint_of_8_ranks_is_taken_up_by_4_and_theirs_by_6(tmp_path):
    found = run_ranks(keep_and_load, 8, str(tmp_path))
    by_plan = list(zip(*found, strict=True))
    for old, new in pairwise(by_plan):
        left, begun = whole([r[1] for r in old]), whole([r[0] for r in new])
        assert all((left[name] == begun[name]).all() for name in left)
        positions = {r[0][:2] for r in new if r[0]} | {r[1][:2] for r in old if r[1]}
        assert len(positions) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000003"]
