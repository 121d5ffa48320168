"""What every search of the registry keeps: legal plans, valid bounds, limits, repeatability."""

import sys
import threading
import time

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cascade.simulate import simulate
from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.solvers.base import MOST_SEED, MOST_WORKERS, Limits, Status
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.solvers.registry import cascade_solver
from arachne_opt.solvers.search import Parts
from tests.strategies import (
    FAST,
    GIB,
    SLOW,
    even_cluster,
    random_problem,
    simple_task,
    two_stage,
)

SEARCHES = ("portfolio", "list", "cpsat")


def problem_of(*cascades: Cascade, nodes: int = 1, devices: int = 4) -> CascadeProblem:
    return CascadeProblem(name="hand", cluster=even_cluster(nodes, devices), cascades=cascades)


def many_cascades(count: int) -> tuple[Cascade, ...]:
    """Cascades of three shapes whose durations do not shrink evenly with the degree."""
    shapes = (
        ({1: 900_000, 2: 500_000, 4: 310_000}, {4: 2_100_000, 6: 1_250_000, 8: 1_000_000}),
        ({1: 400_000, 2: 230_000}, {2: 1_600_000, 4: 790_000, 8: 500_000}),
        ({2: 650_000, 4: 370_000}, {4: 1_700_000, 8: 880_000, 12: 760_000}),
    )
    return tuple(two_stage(f"c{i}", *shapes[i % 3]) for i in range(count))


def wide_problem() -> CascadeProblem:
    return problem_of(*many_cascades(8), nodes=4, devices=8)


def confirmed(problem, result):
    """The simulated makespan of a result's plan, after all checks."""
    assert result.plan is not None
    assert check_plan(problem, result.plan) == ()
    simulation = simulate(problem, result.plan)
    assert simulation.makespan_us == result.objective_us == result.plan.makespan_us
    assert result.bound_us <= result.objective_us
    return simulation.makespan_us


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("workers", [1, 2])
def test_plans_are_legal_and_simulate_to_their_objective(name, workers):
    limits = Limits(time_limit_s=0.15, workers=workers)
    for seed in range(6):
        problem = random_problem(seed, max_nodes=4, max_devices=8)
        confirmed(problem, cascade_solver(name).solve(problem, limits))


@pytest.mark.parametrize("name", ["portfolio", "cpsat"])
def test_one_task_takes_its_fastest_degree(name):
    cascade = Cascade(id="a", tasks=(simple_task("denoise", {1: 90, 2: 50, 4: 30}),))
    problem = problem_of(cascade)
    result = cascade_solver(name).solve(problem, Limits(time_limit_s=2))
    assert (result.status, result.objective_us, result.bound_us) == (Status.OPTIMAL, 30, 30)


@pytest.mark.parametrize("name", ["portfolio", "cpsat"])
def test_two_equal_cascades_share_the_node_instead_of_queueing(name):
    """Side by side at degree 2: 10 + 60; one after the other at degree 4: 2 * (6 + 40)."""
    pair = [two_stage(n, {2: 10, 4: 6}, {2: 60, 4: 40}) for n in "ab"]
    result = cascade_solver(name).solve(problem_of(*pair), Limits(time_limit_s=2))
    assert (result.status, result.objective_us) == (Status.OPTIMAL, 70)


@pytest.mark.parametrize("name", ["portfolio", "cpsat"])
def test_a_degree_wider_than_a_node_pays_the_mildest_penalty_and_no_more(name):
    cascade = Cascade(id="a", tasks=(simple_task("denoise", {8: 1_000_000}),))
    problem = problem_of(cascade, nodes=2, devices=4)
    result = cascade_solver(name).solve(problem, Limits(time_limit_s=2))
    assert result.status is Status.OPTIMAL
    assert result.objective_us == 1_048_166


def test_mixed_types_use_the_fast_type_for_the_long_task():
    """The long task takes 100 on the fast type and 220 on the slow one, the short 40 and 88."""
    fast = even_cluster(1, 2, kind=FAST)
    slow = even_cluster(1, 2, kind=SLOW)
    nodes = (*fast.nodes, *(type(n)(**{**fields(n), "name": "slow"}) for n in slow.nodes))
    cluster = type(fast)(name="mixed", nodes=nodes, inter_link=fast.inter_link)

    def task(us: int) -> Task:
        options = (
            Option(degree=2, duration_us=us, device_type=FAST.name),
            Option(degree=2, duration_us=us * 22 // 10, device_type=SLOW.name),
        )
        return Task(name="denoise", options=options)

    rows = tuple(Cascade(id=i, tasks=(task(us),)) for i, us in (("long", 100), ("short", 40)))
    problem = CascadeProblem(name="mixed", cluster=cluster, cascades=rows)
    result = cascade_solver().solve(problem, Limits(time_limit_s=2))
    assert confirmed(problem, result) == 100
    assert result.status is Status.OPTIMAL
    by_cascade = {p.cascade: p.devices for p in result.plan.placements}
    assert by_cascade == {0: (0, 1), 1: (2, 3)}


def fields(node):
    return {name: getattr(node, name) for name in node.__dataclass_fields__}


def test_a_hand_off_is_waited_for_and_part_of_the_bound():
    """Three of four slices move at 450 GB/s: 5 + 3/4 * 6e9 / 450e9 s."""
    cascade = two_stage("a", {1: 100}, {4: 1000}, input_bytes=6 * 10**9)
    problem = problem_of(cascade)
    result = cascade_solver().solve(problem, Limits(time_limit_s=1))
    assert confirmed(problem, result) == 100 + 5 + 10_000 + 1000
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("name", SEARCHES)
def test_infeasible_problems_name_what_binds(name):
    big = simple_task("denoise", {1: 10, 2: 6}, memory_bytes=91 * GIB)
    wide = simple_task("denoise", {16: 10})
    rows = (Cascade(id="big", tasks=(big,)), Cascade(id="wide", tasks=(wide,)))
    result = cascade_solver(name).solve(problem_of(*rows), Limits(time_limit_s=1))
    assert result.status is Status.INFEASIBLE
    assert result.binding == (
        "denoise of cascade big needs at least 91.0 GiB per device (degree 1), "
        "Fast-80 has 80.0 GiB",
        "denoise of cascade wide has no usable option: degree 16 is wider than the 4 devices",
    )


@pytest.mark.parametrize("name", SEARCHES)
def test_deterministic_runs_of_equal_seed_give_equal_plans(name):
    limits = Limits(time_limit_s=0.25, seed=3, deterministic=True)
    first, second = (cascade_solver(name).solve(wide_problem(), limits) for _ in range(2))
    assert first.plan == second.plan
    assert (first.bound_us, first.objective_us) == (second.bound_us, second.objective_us)


@pytest.mark.parametrize("name", ["portfolio", "cpsat"])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_time_limit_is_kept(name, workers):
    begin = time.monotonic()
    result = cascade_solver(name).solve(wide_problem(), Limits(time_limit_s=0.5, workers=workers))
    assert time.monotonic() - begin < 0.5 * 1.1 + 0.3
    confirmed(wide_problem(), result)


@pytest.mark.parametrize("name", ["portfolio", "cpsat"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_to_stop_is_heard_at_once_and_keeps_the_best_plan(name, workers):
    stop = threading.Event()
    asked: list[float] = []

    def ask() -> None:
        asked.append(time.monotonic())
        stop.set()

    threading.Timer(0.3, ask).start()
    problem = problem_of(*many_cascades(24), nodes=6, devices=8)
    result = cascade_solver(name).solve(
        problem, Limits(time_limit_s=30, workers=workers), should_stop=stop.is_set
    )
    assert time.monotonic() - asked[0] < 0.5
    assert result.interrupted
    confirmed(problem, result)


def test_the_search_ends_early_at_the_asked_gap():
    begin = time.monotonic()
    result = cascade_solver().solve(wide_problem(), Limits(time_limit_s=20, gap=0.15))
    assert result.gap <= 0.15
    assert time.monotonic() - begin < 10


def test_improvements_are_reported_in_order_with_their_plans():
    seen = []
    result = cascade_solver().solve(
        wide_problem(), Limits(time_limit_s=0.5), on_progress=seen.append
    )
    assert tuple(seen) == result.history
    objectives = [p.objective_us for p in seen if p.plan is not None]
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == result.objective_us
    bounds = [p.bound_us for p in seen]
    assert bounds == sorted(bounds)
    assert bounds[-1] == result.bound_us


def test_a_start_plan_is_never_made_worse():
    first = cascade_solver().solve(wide_problem(), Limits(time_limit_s=1.0))
    again = cascade_solver("list").solve(
        wide_problem(), Limits(time_limit_s=1.0), start_plan=first.plan
    )
    assert again.objective_us <= first.objective_us


def test_a_start_plan_of_another_problem_is_ignored():
    other = problem_of(*many_cascades(3), nodes=2, devices=8)
    plan = cascade_solver("list").solve(other, Limits()).plan
    result = cascade_solver("list").solve(wide_problem(), Limits(), start_plan=plan)
    confirmed(wide_problem(), result)


def test_large_problems_are_cut_into_pods_and_stay_legal():
    problem = problem_of(*many_cascades(32), nodes=16, devices=8)
    # What a policy has learned may be better for a while.
    result = solve_cascade(problem, Limits(time_limit_s=2.0), parts=Parts())
    confirmed(problem, result)
    assert "pods" in {p.source for p in result.history}
    quick = cascade_solver("list").solve(problem, Limits())
    assert result.objective_us < quick.objective_us


def test_without_ortools_the_search_says_so_and_list_scheduling_still_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingDependencyError, match="ortools"):
        cascade_solver("cpsat").solve(wide_problem(), Limits(time_limit_s=0.5))
    confirmed(wide_problem(), cascade_solver("list").solve(wide_problem(), Limits()))


def test_an_unknown_solver_is_met_with_the_nearest_name():
    with pytest.raises(InputError, match="portfolio"):
        cascade_solver("portfoglio")


@pytest.mark.parametrize("seed", [-5, MOST_SEED + 1])
def test_seeds_that_a_solver_cannot_take_are_refused(seed):
    Limits(seed=MOST_SEED)
    with pytest.raises(InputError, match=f"from 0 to {MOST_SEED}, not {seed}"):
        Limits(seed=seed)


@pytest.mark.parametrize("workers", [0, MOST_WORKERS + 1])
def test_numbers_of_workers_that_no_machine_has_are_refused(workers):
    Limits(workers=MOST_WORKERS)
    with pytest.raises(InputError, match="workers"):
        Limits(workers=workers)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_largest_seed_is_taken(name):
    problem = random_problem(1)
    result = cascade_solver(name).solve(problem, Limits(time_limit_s=0.3, seed=MOST_SEED))
    assert result.plan is not None
