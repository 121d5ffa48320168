"""Batching and placement together."""

from dataclasses import replace

import pytest

from arachne_opt.cascade.problem import Cascade, Option, Task
from arachne_opt.cascade.verify import verify
from arachne_opt.solvers.base import Limits, Progress, Status
from arachne_opt.solvers.cascade.batching import solve_batching
from arachne_opt.solvers.cascade.batching_digest import BatchingDigest
from arachne_opt.solvers.cascade.bounds import deadline_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.quick import quick_plan
from arachne_opt.solvers.registry import cascade_solver
from tests.batching_builders import all_batchings, one_shape, random_batching
from tests.strategies import FAST, GIB, even_cluster, seeded_plan, simple_task

PAIR = even_cluster(1, 2)
# Units of work: a busy machine finds the same.
SHORT = Limits(time_limit_s=0.3, workers=1, deterministic=True)


def large_pair() -> tuple[Cascade, Cascade]:
    """One clip and two clips: encoding takes 10 s, denoising two devices and most of them."""
    s, made = 10**6, []
    for seconds, room in ((100, 70), (203, 20)):
        denoise = (Option(degree=2, duration_us=seconds * s, memory_bytes=room * GIB),)
        encode = simple_task("encode", {1: 10 * s}, memory_bytes=10 * GIB)
        last = Task(name="denoise", options=denoise, predecessors=(0,), input_bytes=20 * GIB)
        made.append(Cascade(id=str(len(made) + 1), tasks=(encode, last)))
    return made[0], made[1]


def makespan_us(problem, limits=SHORT, **given):
    found = solve_batching(problem, limits, **given)
    assert found.result.plan is not None
    verify(found.problem, found.result.plan, found.result.objective_us)
    problem.iteration(found.batching)
    assert found.bound_us <= found.result.bound_us or found.result.status is Status.OPTIMAL
    return found


def test_clips_run_together_where_that_is_faster_and_apart_where_not() -> None:
    """Two clips on two devices: apart both end after 10 s, together after 9 s or after 12 s."""
    s = 10**6
    joined = makespan_us(one_shape(PAIR, 2, {1: {1: 10 * s}, 2: {1: 16 * s, 2: 9 * s}}))
    assert (joined.batching, joined.result.objective_us) == (((2,),), 9 * s)
    apart = makespan_us(one_shape(PAIR, 2, {1: {1: 10 * s}, 2: {1: 16 * s, 2: 12 * s}}))
    assert (apart.batching, apart.result.objective_us) == (((1, 1),), 10 * s)


def test_the_best_mixture_of_sizes_is_found() -> None:
    """Five clips on two devices: 3 on one beside 2 on the other is best, as 27 beside 20."""
    problem = one_shape(PAIR, 5, {1: {1: 12}, 2: {1: 20}, 3: {1: 27}})
    found = makespan_us(problem)
    assert found.result.objective_us == 27
    assert sorted(found.batching[0]) == [2, 3]


@pytest.mark.parametrize("seed", range(25))
def test_the_bound_is_the_least_of_the_bounds_of_all_batchings(seed: int) -> None:
    problem = random_batching(seed)
    digest = BatchingDigest(problem)
    each = [
        deadline_bound(Digest(problem.placement_problem(batching)), digest.prices)
        for batching in all_batchings(problem)
    ]
    assert digest.lower_bound() == min(each)


@pytest.mark.parametrize("seed", range(10))
def test_no_plan_of_any_batching_beats_the_bound(seed: int) -> None:
    problem = random_batching(seed, most_clips=4)
    bound_us = BatchingDigest(problem).lower_bound()
    for batching in all_batchings(problem):
        placement = problem.placement_problem(batching)
        assert quick_plan(placement)[0].makespan_us >= bound_us
        assert seeded_plan(placement, seed).makespan_us >= bound_us


@pytest.mark.parametrize("seed", range(12))
def test_plans_are_legal_on_all_kinds_of_clusters(seed: int) -> None:
    makespan_us(random_batching(seed), Limits(time_limit_s=0.1, workers=1))


@pytest.mark.parametrize("seed", range(6))
def test_the_answer_is_never_worse_than_the_plan_that_it_begins_with(seed: int) -> None:
    problem = random_batching(seed)
    start = next(iter(all_batchings(problem)))
    placed = cascade_solver().solve(problem.placement_problem(start), SHORT)
    found = makespan_us(
        problem, Limits(time_limit_s=0.05, workers=1), start=start, start_plan=placed.plan
    )
    assert found.result.objective_us <= placed.objective_us


def test_nor_where_memory_is_short_for_what_list_schedules_find() -> None:
    """Apart 210 s, but for latents that wait beside the other denoising; together 213 s."""
    apart, together = large_pair()
    problem = one_shape(PAIR, 2, {1: {1: 1}, 2: {1: 1}})
    resident = ((FAST.name, 5 * GIB),)
    problem = replace(problem, catalogue=(apart, together), resident_bytes=resident)
    free = makespan_us(replace(problem, resident_bytes=()), start=((2,),))
    assert free.batching == ((1, 1),)
    found = makespan_us(problem, start=((2,),))
    assert found.batching == ((2,),)
    alone = cascade_solver().solve(problem.placement_problem(((1, 1),)), SHORT)
    assert free.result.objective_us < found.result.objective_us < alone.objective_us
    other = makespan_us(problem, start=((1, 1),))
    assert (other.batching, other.result.objective_us) == (((2,),), found.result.objective_us)


def test_equal_input_and_seed_give_an_equal_answer() -> None:
    limits = Limits(time_limit_s=0.4, workers=1, deterministic=True, seed=5)
    found = [makespan_us(random_batching(4), limits) for _ in range(2)]
    assert found[0].batching == found[1].batching
    assert found[0].result.plan == found[1].result.plan
    assert found[0].tried == found[1].tried


def test_improvements_are_told_with_the_bound_of_all_batchings() -> None:
    told: list[Progress] = []
    found = makespan_us(random_batching(7), on_progress=told.append)
    makespans = [event.objective_us for event in told]
    assert makespans == sorted(makespans, reverse=True)
    assert makespans[-1] == found.result.objective_us
    assert all(event.bound_us <= found.bound_us for event in told)


def test_the_user_can_stop_and_keeps_a_plan() -> None:
    found = makespan_us(
        random_batching(3), Limits(time_limit_s=60, workers=1), should_stop=lambda: True
    )
    assert found.result.interrupted
    assert found.result.wall_s < 5


def test_a_start_plan_in_the_wrong_shape_is_passed_over() -> None:
    problem = random_batching(2)
    start = next(iter(all_batchings(problem)))
    plan = seeded_plan(problem.placement_problem(start))
    cut = replace(plan, placements=plan.placements[:-1])
    makespan_us(problem, start=start, start_plan=cut)


def test_on_many_nodes_a_few_batchings_are_placed_by_the_whole_solver() -> None:
    """Sixteen clips on eight nodes: two together take 15, alone 10, on one device each."""
    s = 10**6
    problem = one_shape(even_cluster(8, 1), 16, {1: {1: 10 * s}, 2: {1: 15 * s}})
    start = ((1,) * 16,)
    found = makespan_us(problem, Limits(time_limit_s=1.0, workers=2), start=start)
    assert (found.batching, found.result.objective_us) == (((2,) * 8,), 15 * s)
    assert found.tried > 1
    plan = seeded_plan(problem.placement_problem(start))
    again = makespan_us(problem, Limits(time_limit_s=0.05), start=start, start_plan=plan)
    assert again.result.objective_us <= plan.makespan_us
