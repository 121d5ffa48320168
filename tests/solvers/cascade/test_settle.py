"""Gentle search around schedules that are given."""

from __future__ import annotations

import random

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Schedule, from_plan, in_start_order, to_plan
from arachne_opt.solvers.cascade.settle import settle
from arachne_opt.solvers.clock import Clock
from arachne_opt.solvers.incumbent import Incumbent
from arachne_opt.solvers.portfolio import solve_cascade
from tests.strategies import even_cluster, seeded_plan, two_stage

S = 10**6


def hard_problem(count: int = 12, nodes: int = 3) -> CascadeProblem:
    dice = random.Random(count)
    cascades = []
    for i in range(count):
        s = dice.randint(5, 40) * S
        options = {1: 8 * s, 2: 9 * s // 2, 4: 5 * s // 2, 8: 3 * s // 2, 12: s}
        cascades.append(two_stage(f"c{i}", {1: s, 2: 6 * s // 10}, options))
    return CascadeProblem(name="hard", cluster=even_cluster(nodes, 8), cascades=tuple(cascades))


def given(problem: CascadeProblem, seed: int) -> tuple[Digest, Schedule]:
    """A random legal schedule."""
    digest = Digest(problem)
    schedule = from_plan(digest, seeded_plan(problem, seed))
    assert schedule is not None
    return digest, in_start_order(digest, schedule)


def settled(digest: Digest, *starts: Schedule, units: float) -> Incumbent:
    limits = Limits(time_limit_s=units, deterministic=True, workers=1)
    clock = Clock(limits)
    best = Incumbent(digest, clock, None)
    best.raise_bound(lower_bound(digest), "bounds")
    best.offer(starts[0], "start plan")
    settle(digest, starts, best, clock, limits)
    assert clock.elapsed() <= units * (0.1 * len(starts)) + 0.1
    return best


@pytest.mark.parametrize("seed", range(3))
def test_a_schedule_becomes_shorter_and_stays_legal(seed: int) -> None:
    digest, start = given(hard_problem(), seed)
    best = settled(digest, start, units=2)
    assert best.schedule is not None
    assert best.schedule.makespan_us < 0.8 * start.makespan_us
    assert check_plan(digest.problem, to_plan(digest, best.schedule)) == ()


def test_the_same_limits_give_the_same_schedule() -> None:
    digest, start = given(hard_problem(), 1)
    first, second = (settled(digest, start, units=1).schedule for _ in range(2))
    assert first == second


def test_several_schedules_get_a_turn_and_the_best_of_all_is_kept() -> None:
    digest, poor = given(hard_problem(), 1)
    good = settled(digest, poor, units=4).schedule
    assert good is not None
    best = settled(digest, poor, good, units=0.5).schedule
    assert best is not None
    assert best.key <= good.key


def test_a_search_that_is_over_keeps_what_was_given() -> None:
    digest, start = given(hard_problem(), 1)
    clock = Clock(Limits(time_limit_s=5), should_stop=lambda: True)
    best = Incumbent(digest, clock, None)
    best.offer(start, "start plan")
    settle(digest, [start], best, clock, Limits(time_limit_s=5))
    assert best.schedule == start


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_poor_start_does_not_hold_a_search_back(seed: int) -> None:
    problem = hard_problem(16, 4)
    limits = Limits(time_limit_s=1, deterministic=True, workers=1)
    alone = solve_cascade(problem, limits).objective_us
    start = seeded_plan(problem, seed)
    begun = solve_cascade(problem, limits, start_plan=start).objective_us
    assert alone is not None
    assert begun is not None
    assert begun <= min(1.02 * alone, start.makespan_us)
