"""Closed form and simulator: how far they may differ, from the plan alone."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from arachne_opt.errors import DisagreementError
from arachne_opt.pipeline import verify as gate
from arachne_opt.pipeline.agreement import BOTH_APPLY, agreement
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, ReplicaKind
from arachne_opt.pipeline.simulate import simulate
from tests.pipeline_builders import even_pipeline, plan_of, random_plan, small_problem, stage

A, V = ReplicaKind("A100-40"), ReplicaKind("V100-16")


def simulated_s(problem, plan):
    return simulate(problem, plan, published_ends=True).iteration_s


def drawn(seed):
    """A problem with one pipeline or two equal ones of pure stages with any dp that divides."""
    rng = random.Random(seed)
    rows = rng.choice((6, 8, 12))
    problem = small_problem(seed=seed, batch=64, rows=rows, free_links=rng.random() < 0.3)
    count = rng.randint(2, min(7, rows))
    cuts = [0, *sorted(rng.sample(range(1, rows), count - 1)), rows]
    widths = (1, 2, 4, 8) if rng.random() < 0.3 else (2,)
    stages = tuple(
        stage(a, b, *[rng.choice((A, V))._replace(tp=rng.choice((1, 2)))] * rng.choice(widths))
        for a, b in pairwise(cuts)
    )
    rounds = rng.choice((1, 2, 3, 6, 12, 40))
    one = Pipeline(microbatch=8 // len(stages[0].replicas), stages=stages, microbatches=rounds)
    return problem, plan_of(problem, *[one] * rng.choice((1, 1, 2)))


def test_the_simulator_keeps_to_the_bounds_on_pure_stages():
    narrow = 0
    for seed in range(60):
        problem, plan = drawn(seed)
        owed, played = agreement(problem, plan), simulated_s(problem, plan)
        assert not owed.reasons
        assert owed.allows(played), seed
        assert owed.low_s <= owed.closed_s <= owed.high_s
        if owed.both_apply:
            narrow += 1
            assert abs(played / owed.closed_s - 1) <= BOTH_APPLY
    assert narrow >= 20


def test_the_simulator_keeps_to_the_bounds_on_any_plan():
    known = 0
    for seed in range(60):
        problem = small_problem(seed=seed, batch=48, rows=6, experts=4 * (seed % 2))
        plan = random_plan(problem, seed)
        owed = agreement(problem, plan)
        assert owed.allows(simulated_s(problem, plan)), seed
        known += not owed.reasons
    assert known >= 12


@pytest.mark.parametrize("stages", [2, 3, 6])
def test_equal_stages_without_sends_must_agree_exactly(stages):
    problem = small_problem(flat=True, free_links=True, batch=16)
    plan = plan_of(problem, even_pipeline(problem, stages, A, count=16))
    owed = agreement(problem, plan)
    # Links are next to free, not free.
    assert owed.high_s - owed.low_s <= 1e-6 * owed.closed_s
    assert simulated_s(problem, plan) == pytest.approx(owed.closed_s, rel=1e-6)


def test_short_rounds_beside_a_bottleneck_hide_in_its_bubble():
    # Rows of 1 s and 2 s: the first stage takes 9 s a round, the others 3 s.
    problem = small_problem(flat=True, free_links=True, batch=4, rows=5)
    own = Pipeline(
        microbatch=1, stages=(stage(0, 3, A), stage(3, 4, A), stage(4, 5, A)), microbatches=4
    )
    plan = plan_of(problem, own)
    owed = agreement(problem, plan)
    assert owed.closed_s == pytest.approx(4 * 9 + 6, rel=1e-6)
    # The first backward waits 6 s for the others, in which two more forwards of 3 s are done.
    assert owed.low_s == pytest.approx(4 * 9, rel=1e-6)
    assert simulated_s(problem, plan) == pytest.approx(4 * 9, rel=1e-6)
    assert not owed.both_apply


def test_much_of_a_forward_here_and_of_a_backward_there_takes_longer_than_the_closed_form():
    problem = small_problem(flat=True, free_links=True, batch=2, rows=3)
    steps = tuple(
        replace(s, forward_s=(1.0, 1e-6, 1e-6), backward_s=(1e-6, 1.0, 1e-6))
        for s in problem.tables.steps
    )
    problem = replace(problem, tables=replace(problem.tables, steps=steps))
    plan = plan_of(problem, even_pipeline(problem, 3, A, count=2))
    owed, played = agreement(problem, plan), simulated_s(problem, plan)
    assert owed.closed_s == pytest.approx(3, abs=1e-3)
    assert owed.high_s == pytest.approx(4, abs=1e-3)
    assert played == pytest.approx(owed.high_s, rel=1e-9)


def test_unlike_pipelines_and_shares_that_do_not_divide_are_left_out():
    problem = small_problem("A100-40=8,V100-16=8", batch=48)
    one = Pipeline(microbatch=1, stages=(stage(0, 2, A), stage(2, 6, A)), microbatches=8)
    other = Pipeline(microbatch=1, stages=(stage(0, 3, A), stage(3, 6, A)), microbatches=8)
    assert "differ in cuts" in agreement(problem, plan_of(problem, one, other)).reasons[0]
    odd = Pipeline(microbatch=3, stages=(stage(0, 3, A, A), stage(3, 6, A, A, A)), microbatches=8)
    assert "2 and 3 replicas" in agreement(problem, plan_of(problem, odd)).reasons[0]
    assert not agreement(problem, plan_of(problem, odd)).both_apply


def test_the_gate_stops_a_simulation_that_cannot_be(monkeypatch):
    problem = small_problem("A100-40=8")
    plan = plan_of(problem, even_pipeline(problem, 2, A, A, count=8))
    owed = agreement(problem, plan)

    def too_long(*args, **kwargs):
        found = simulate(*args, **kwargs)
        return replace(found, iteration_s=owed.high_s * 1.001)

    assert gate.verify(problem, plan, owed.closed_s).agreement == owed
    monkeypatch.setattr(gate, "simulate", too_long)
    with pytest.raises(DisagreementError, match="it may lie between"):
        gate.verify(problem, plan, owed.closed_s)


def test_a_plan_that_differs_in_nodes_only_is_checked_but_not_simulated_again(monkeypatch):
    problem = small_problem("A100-40=4+4")
    plan = place(problem, plan_of(problem, even_pipeline(problem, 2, A, A, count=8)))
    price_s = agreement(problem, plan).closed_s
    known = plan, gate.verify(problem, plan, price_s)
    monkeypatch.setattr(gate, "simulate", None)
    moved = plan.relabel(plan.model, {("A100-40", 0): 1, ("A100-40", 1): 0})
    assert gate.verify(problem, moved, price_s, known=known) is known[1]
    away = plan.relabel(plan.model, {("A100-40", 0): 7, ("A100-40", 1): 7})
    with pytest.raises(DisagreementError, match="not legal"):
        gate.verify(problem, away, price_s, known=known)
    shifted = plan_of(problem, even_pipeline(problem, 3, A, count=16))
    with pytest.raises(TypeError):
        gate.verify(problem, shifted, agreement(problem, shifted).closed_s, known=known)
