"""What the planner says will move is what the runtime moves, value by value."""

import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from arachne_opt.errors import InfeasibleError
from arachne_opt.executor.pipeline.training import model_of
from arachne_opt.pipeline.architecture import ExpertLayers
from arachne_opt.pipeline.holdings import Holdings, holdings, settle
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.moves import plan_moves, state_held, weights_held
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan
from arachne_opt.pipeline.relayout import price_relayout
from tests.executor.pipeline.exact_tables import SPEC, exact_problem
from tests.executor.pipeline.random_plans import plan_of, random_plan, stage

# Up to eight shards of up to four parts of everything are whole.
WIDTH = 4 * 840
EVEN = replace(
    SPEC,
    hidden=WIDTH,
    head_width=WIDTH // 4,
    ffn=WIDTH,
    vocabulary=WIDTH,
    embedding_width=WIDTH,
    experts=ExpertLayers(count=4, top_k=2, width=WIDTH),
)


def placed_plans(rng: random.Random, count: int, zero1: bool) -> list[PipelinePlan]:
    """Random plans on two nodes of four devices of one type."""
    found: list[PipelinePlan] = []
    while len(found) < count:
        plan = random_plan(
            rng, rows=EVEN.row_count, expert_degrees=(1, 2), types=("A100-40",), degrees=(1, 2, 4)
        )
        try:
            found.append(place(exact_problem(EVEN), replace(plan, zero1=zero1)))
        except InfeasibleError:
            continue
    return found


def runtime_bytes(old: Holdings, new: Holdings) -> tuple[int, int]:
    """Bytes of the model's own boxes, over the network and inside nodes: fp32 and two moments."""
    devices = list(dict.fromkeys((*old.devices, *new.devices)))
    model, network, inside = model_of(EVEN), 0, 0

    def held(side: Holdings):
        places = [devices.index(d) for d in side.devices]
        yield 4, weights_held(side.layout, model, places)
        yield 8, state_held(side.layout, model, places, zero1=side.zero1)

    for (value_bytes, before), (_, after) in zip(held(old), held(new), strict=True):
        for move in plan_moves(before, after, lambda n: devices[n].node):
            assert move.source is not None
            if devices[move.source].node != devices[move.target].node:
                network += move.values * value_bytes
            elif move.source != move.target:
                inside += move.values * value_bytes
    return network, inside


@pytest.mark.parametrize("zero1", [False, True])
def test_the_estimate_is_what_moves_between_random_plans(zero1):
    plans = placed_plans(random.Random(17), 24, zero1)
    for one, two in pairwise(plans):
        old = holdings(one)
        price = price_relayout(exact_problem(EVEN), old, two)
        planned = price.network_bytes, price.inside_bytes
        moved = runtime_bytes(old, settle(old, two))
        assert planned == moved
        assert price.lost_bytes == 0


def test_who_has_what_it_needs_keeps_it():
    plan = placed_plans(random.Random(2), 1, True)[0]
    model, places = model_of(EVEN), range(Layout(plan).world_size)
    held = state_held(Layout(plan), model, places, zero1=True)
    moves = plan_moves(held, held, lambda place: place)
    assert moves
    assert all(move.source == move.target and move.round == 0 for move in moves)


def test_who_has_received_something_sends_it_on():
    """One place has all; of five more that need it, no two get all of it from the first."""
    plan = plan_of(Pipeline(microbatch=1, microbatches=1, stages=(stage(0, 6, 1, 1, 1, 1, 1),)))
    model, layout = model_of(EVEN), Layout(plan)
    before = weights_held(layout, model, [0] * 5)
    after = weights_held(layout, model, range(1, 6))
    moves = plan_moves(before, after, lambda place: place)
    sent = Counter({p: sum(m.values for m in moves if m.source == p) for p in range(6)})
    whole = sum(m.values for m in moves) / 5
    assert sent[0] < 2 * whole
    for move in moves:
        got = [m for m in moves if (m.key, m.box, m.target) == (move.key, move.box, move.source)]
        assert move.round == (got[0].round + 1 if got else 0)
