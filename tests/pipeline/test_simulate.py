"""The event simulator: by hand, against the closed form, and what it must never do."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from arachne_opt.errors import DisagreementError, InputError
from arachne_opt.pipeline.agreement import agreement
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.plan import Pipeline, ReplicaKind
from arachne_opt.pipeline.problem import PipelineOptions, Schedule
from arachne_opt.pipeline.schedules import Op, peak_in_flight, stage_order
from arachne_opt.pipeline.simulate import simulate
from arachne_opt.pipeline.verify import verify
from tests.pipeline_builders import even_pipeline, plan_of, random_plan, small_problem, stage

A, V = ReplicaKind("A100-40"), ReplicaKind("V100-16")
ANYTHING = PipelineOptions(allow_excess=True, recomputation=True, zero1=True)


@pytest.mark.parametrize("stages", [1, 2, 3, 6])
@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_uniform_1f1b_without_sends_is_the_closed_form(stages, count):
    problem = small_problem(flat=True, free_links=True, batch=count)
    plan = plan_of(problem, even_pipeline(problem, stages, A, count=count))
    expected = (count + stages - 1) * 3 * 6 / stages
    played = simulate(problem, plan)
    assert played.pipelines_s[0] == pytest.approx(expected, rel=1e-6)
    assert price_plan(problem, plan).iteration_s == pytest.approx(expected, rel=1e-6)
    bubble = (stages - 1) / (count + stages - 1)
    assert played.bubble == pytest.approx(bubble, abs=1e-6)


@pytest.mark.parametrize("seed", range(30))
def test_one_stage_of_one_type_agrees_exactly(seed):
    rng = random.Random(seed)
    problem = small_problem(seed=seed, batch=rng.randint(1, 40))
    pipelines = [
        even_pipeline(
            problem, 1, *[A._replace(tp=rng.choice((1, 2)))] * rng.choice((1, 2, 3)),
            microbatch=rng.choice((1, 2, 4)),
        )
        for _ in range(rng.choice((1, 1, 2)))
    ]  # fmt: skip
    plan = plan_of(problem, *pipelines)
    assert agreement(problem, plan).exact
    assert simulate(problem, plan).iteration_s == pytest.approx(
        price_plan(problem, plan).iteration_s, rel=1e-9
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_operations_beats_the_busiest_stage(seed):
    problem = small_problem(seed=seed, batch=24, options=ANYTHING)
    plan = random_plan(problem, seed)
    price = price_plan(problem, plan)
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.GPIPE):
        played = simulate(problem, plan, schedule=schedule)
        for p, part in enumerate(price.pipelines):
            least = max(part.compute_s) * part.microbatches
            assert played.pipelines_s[p] >= least * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_overlap_never_slows_an_iteration_of_one_stage_chain(seed):
    problem = small_problem(seed=seed, batch=24)
    plan = plan_of(problem, even_pipeline(problem, 3, A, microbatch=2, count=12))
    plain = simulate(problem, plan)
    assert simulate(problem, plan, overlap_sync=True).iteration_s <= plain.iteration_s + 1e-9
    assert simulate(problem, plan, blocking_sends=False).iteration_s <= plain.iteration_s + 1e-9


def test_a_two_stage_pipeline_by_hand():
    # Rows of 1 s forward and 2 s backward, 3 + 3 rows, two micro-batches, free links.
    problem = small_problem(flat=True, free_links=True, batch=2)
    plan = plan_of(problem, even_pipeline(problem, 2, A, count=2))
    tasks = simulate(problem, plan, keep_tasks=True).tasks
    first = [(t.op.forward, t.op.microbatch, round(t.start_s, 6)) for t in tasks if t.stage == 0]
    last = [(t.op.forward, t.op.microbatch, round(t.start_s, 6)) for t in tasks if t.stage == 1]
    assert first == [(True, 0, 0), (True, 1, 3), (False, 0, 12), (False, 1, 21)]
    assert last == [(True, 0, 3), (False, 0, 6), (True, 1, 12), (False, 1, 15)]


def test_gpipe_keeps_every_microbatch_and_1f1b_only_as_many_as_stages():
    problem = small_problem(flat=True, free_links=True, batch=12)
    plan = plan_of(problem, even_pipeline(problem, 3, A, count=12))
    by_turns = simulate(problem, plan)
    in_flight = [s.in_flight for s in by_turns.stages]
    assert in_flight == [3, 2, 1]
    gpipe = simulate(problem, plan, schedule=Schedule.GPIPE)
    assert [s.in_flight for s in gpipe.stages] == [12, 12, 12]
    assert gpipe.iteration_s == pytest.approx(by_turns.iteration_s, rel=1e-6)


def test_interleaving_shrinks_the_bubble_by_the_number_of_chunks():
    problem = small_problem(flat=True, free_links=True, rows=8, batch=8)
    plan = plan_of(problem, even_pipeline(problem, 4, A, count=8))
    plain = simulate(problem, plan).iteration_s
    halved = simulate(problem, plan, schedule=Schedule.INTERLEAVED, chunks=2).iteration_s
    work = 8 * 3 * 2  # micro-batches x seconds a row x rows a stage
    assert plain - work == pytest.approx(3 * 6, rel=1e-6)
    assert halved - work == pytest.approx(3 * 6 / 2, rel=1e-6)


def test_interleaving_one_chunk_is_plain_1f1b_in_time():
    problem = small_problem(flat=True, free_links=True, rows=8, batch=8)
    plan = plan_of(problem, even_pipeline(problem, 4, A, count=8))
    plain = simulate(problem, plan).iteration_s
    assert simulate(problem, plan, schedule=Schedule.INTERLEAVED).iteration_s == pytest.approx(
        plain, rel=1e-6
    )


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_every_schedule_runs_each_operation_once_and_forwards_first(schedule, chunks):
    if schedule is not Schedule.INTERLEAVED:
        chunks = 1
    for stage_number in range(4):
        order = stage_order(schedule, stage_number, 4, 8, chunks)
        assert len(order) == len(set(order)) == 2 * 8 * chunks
        for op in order:
            if not op.forward:
                assert order.index(Op(True, op.chunk, op.microbatch)) < order.index(op)
        assert 1 <= peak_in_flight(order) <= 8 * chunks


def test_interleaving_refuses_what_it_cannot_deal():
    problem = small_problem(batch=7)
    plan = plan_of(problem, even_pipeline(problem, 2, A, count=7))
    with pytest.raises(InputError, match="7 micro-batches in 2"):
        simulate(problem, plan, schedule=Schedule.INTERLEAVED, chunks=2)
    even = plan_of(problem, even_pipeline(problem, 6, A, count=12))
    with pytest.raises(InputError, match="1 rows for 2 chunks"):
        simulate(problem, even, schedule=Schedule.INTERLEAVED, chunks=2)
    with pytest.raises(InputError, match="2 chunks"):
        simulate(problem, plan, chunks=2)


def test_recomputation_costs_one_more_forward():
    problem = small_problem(flat=True, free_links=True, batch=4, options=ANYTHING)
    own = Pipeline(microbatch=1, stages=(stage(0, 6, A, recompute=True),), microbatches=4)
    plan = plan_of(problem, own)
    assert simulate(problem, plan).iteration_s == pytest.approx(4 * 6 * 4)
    assert price_plan(problem, plan).iteration_s == pytest.approx(4 * 6 * 4)


def test_an_expert_group_waits_for_its_slowest_member_and_pays_its_all_to_all():
    problem = small_problem("A100-40=4", experts=4, flat=True, free_links=True, imbalance=1.5)
    kind = A._replace(ep=4, ep_local=True)
    plan = plan_of(problem, even_pipeline(problem, 1, *[kind] * 4, count=4))
    # Experts take half of the four inner rows; half as long again when they are spread.
    per_batch = 6 * 3 + 4 * 0.5 * 3 * 0.5
    exchange = 4 * 4 * 3_000_000 * 0.75 / 50e9
    assert simulate(problem, plan).pipelines_s[0] == pytest.approx(4 * (per_batch + exchange))
    alone = plan_of(problem, even_pipeline(problem, 1, *[A] * 4, count=4))
    assert simulate(problem, alone).pipelines_s[0] == pytest.approx(4 * 6 * 3)


def test_gradients_of_every_row_are_exchanged_once_across_different_cuts():
    problem = small_problem(batch=16)
    one = Pipeline(microbatch=1, stages=(stage(0, 2, A), stage(2, 6, A)), microbatches=8)
    two = Pipeline(microbatch=1, stages=(stage(0, 3, V), stage(3, 6, V)), microbatches=8)
    played = simulate(problem, plan_of(problem, one, two))
    rows = sorted(r for s in played.syncs for r in range(s.first, s.end))
    assert rows == list(range(6))
    assert [(s.first, s.end) for s in sorted(played.syncs, key=lambda s: s.first)] == [
        (0, 2),
        (2, 3),
        (3, 6),
    ]
    assert all(s.start_s >= max(played.pipelines_s) for s in played.syncs)
    early = simulate(problem, plan_of(problem, one, two), overlap_sync=True)
    assert early.iteration_s <= played.iteration_s


def test_no_exchange_without_a_second_replica():
    problem = small_problem()
    assert simulate(problem, plan_of(problem, even_pipeline(problem, 2, A))).syncs == ()


@pytest.mark.parametrize("seed", range(25))
def test_messages_arrive_before_they_are_used_and_no_replica_does_two_things(seed):
    problem = small_problem(seed=seed, batch=12)
    plan = random_plan(problem, seed)
    tasks = simulate(problem, plan, keep_tasks=True).tasks
    ended = {(t.pipeline, t.stage, t.replica, t.op): t.end_s for t in tasks}
    by_replica = {}
    for t in tasks:
        by_replica.setdefault((t.pipeline, t.stage, t.replica), []).append(t)
        pipeline = plan.pipelines[t.pipeline]
        other = t.stage - 1 if t.op.forward else t.stage + 1
        if 0 <= other < len(pipeline.stages):
            n, m = len(pipeline.stages[other].replicas), len(pipeline.stages[t.stage].replicas)
            for j in range(max(n, m)):
                if j % m == t.replica:
                    assert ended[t.pipeline, other, j % n, t.op] <= t.start_s
    for own in by_replica.values():
        assert all(a.end_s <= b.start_s + 1e-12 for a, b in pairwise(own))
    total = sum(2 * n * len(s.replicas) for p, n in zip(plan.pipelines, plan.counts, strict=True)
                for s in p.stages)  # fmt: skip
    assert len(tasks) == total


def test_the_gate_passes_an_honest_objective_and_stops_a_wrong_one():
    problem = small_problem("A100-40=8")
    plan = plan_of(problem, even_pipeline(problem, 2, A, A, count=8))
    price = price_plan(problem, plan)
    verdict = verify(problem, plan, price.iteration_s)
    assert 0.5 < verdict.simulated_ratio < 1.5
    with pytest.raises(DisagreementError, match="the solver says"):
        verify(problem, plan, price.iteration_s * 1.001)
    with pytest.raises(DisagreementError, match="not legal"):
        verify(problem, replace(plan, model="other"), price.iteration_s)
