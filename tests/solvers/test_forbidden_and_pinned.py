"""Forbidden devices and pins: optima by hand, bounds, and what binds."""

from dataclasses import replace

import pytest

from arachne_opt.cascade.check import Fault, check_plan
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Task
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.cascade.simulate import simulate
from arachne_opt.cascade.usable import usable_part, without_devices
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.cascade.quick import quick_plan
from arachne_opt.solvers.cascade.warm_start import Planned, warm_start
from arachne_opt.solvers.registry import SEARCHES, cascade_solver, cascade_solver_names
from tests.strategies import FAST, GIB, SLOW, even_cluster, seeded_plan, simple_task, two_stage

EXACT = ("portfolio", "cpsat")
SHORT = Limits(time_limit_s=1)


def lone(name: str, durations_us: dict[int, int], *pin: int) -> Cascade:
    task = replace(simple_task("denoise", durations_us), allowed_devices=pin or None)
    return Cascade(id=name, tasks=(task,))


def problem_of(*cascades: Cascade, nodes: int = 1, devices: int = 4, forbidden=()):
    cluster = even_cluster(nodes, devices)
    return CascadeProblem(
        name="hand", cluster=cluster, cascades=cascades, forbidden_devices=forbidden
    )


def solved(name: str, problem: CascadeProblem):
    result = cascade_solver(name).solve(problem, SHORT)
    assert result.plan is not None
    verify(problem, result.plan, result.objective_us)
    return result


@pytest.mark.parametrize("name", EXACT)
def test_the_work_goes_to_the_devices_that_are_left_and_the_bound_counts_only_them(name) -> None:
    """Four tasks of 100 us: on 4 devices 100 us, on 2 of them 200 us."""
    rows = tuple(lone(f"c{i}", {1: 100}) for i in range(4))
    result = solved(name, problem_of(*rows, forbidden=(1, 2)))
    assert (result.status, result.objective_us, result.bound_us) == (Status.OPTIMAL, 200, 200)
    assert {d for p in result.plan.placements for d in p.devices} == {0, 3}


@pytest.mark.parametrize("name", EXACT)
def test_a_group_around_a_drained_device_pays_for_leaving_the_node(name) -> None:
    """Degree 4 on nodes of 4 with one drained each: 1,000,000 us at the mildest penalty."""
    problem = problem_of(lone("a", {4: 1_000_000}), nodes=2, forbidden=(0, 5))
    assert solved(name, problem).objective_us > 1_048_000


@pytest.mark.parametrize("name", cascade_solver_names())
def test_every_solver_keeps_off_forbidden_devices(name) -> None:
    rows = [two_stage(f"c{i}", {1: 50, 2: 30}, {1: 400, 2: 210, 4: 120}) for i in range(5)]
    problem = problem_of(*rows, nodes=2, forbidden=(0, 2, 3))
    result = cascade_solver(name).solve(problem, SHORT)
    if result.plan is None:
        assert name not in SEARCHES
        return
    verify(problem, result.plan, result.objective_us)
    progress = [event.plan for event in result.history if event.plan is not None]
    assert all(check_plan(problem, plan) == () for plan in progress)


@pytest.mark.parametrize("name", EXACT)
def test_pinned_tasks_share_their_device_while_others_are_idle(name) -> None:
    """Three tasks of 100 us on device 1 of four: one after the other."""
    rows = tuple(lone(f"c{i}", {1: 100}, 1) for i in range(3))
    result = solved(name, problem_of(*rows))
    assert (result.status, result.objective_us, result.bound_us) == (Status.OPTIMAL, 300, 300)


@pytest.mark.parametrize("name", EXACT)
def test_an_unpinned_task_makes_room_for_a_pinned_one(name) -> None:
    """The long pinned task takes device 0 at once, the others share device 1: 100 us in all."""
    rows = (lone("a", {1: 50}), lone("b", {1: 50}), lone("pinned", {1: 100}, 0))
    result = solved(name, problem_of(*rows, devices=2))
    assert (result.status, result.objective_us) == (Status.OPTIMAL, 100)


@pytest.mark.parametrize("name", EXACT)
def test_pins_and_forbidden_devices_hold_together(name) -> None:
    """Pinned to 0, 1 and 2, of which 1 is drained: two tasks side by side, then the third."""
    rows = tuple(lone(f"c{i}", {1: 100}, 0, 1, 2) for i in range(3))
    result = solved(name, problem_of(*rows, forbidden=(1,)))
    assert (result.status, result.objective_us) == (Status.OPTIMAL, 200)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_pin_that_leaves_too_few_devices_is_named(name) -> None:
    wide = replace(simple_task("text", {2: 10}), allowed_devices=(0, 1))
    problem = problem_of(Cascade(id="a", tasks=(wide,)), forbidden=(1,))
    result = cascade_solver(name).solve(problem, SHORT)
    assert result.status is Status.INFEASIBLE
    assert result.binding == (
        "text of cascade a has no usable option: degree 2 is wider than the 1 device that text "
        "is pinned to (0, 1) and that are not forbidden (all but 1)",
    )


def test_a_pin_to_devices_with_too_little_memory_is_named() -> None:
    small, large = even_cluster(1, 2, kind=SLOW), even_cluster(1, 2, kind=FAST)
    nodes = (small.nodes[0], replace(large.nodes[0], name="large"))
    big = replace(simple_task("denoise", {1: 10}, memory_bytes=60 * GIB), allowed_devices=(0, 1))
    problem = CascadeProblem(
        name="hand",
        cluster=replace(small, nodes=nodes),
        cascades=(Cascade(id="a", tasks=(big,)),),
    )
    result = cascade_solver().solve(problem, SHORT)
    assert result.status is Status.INFEASIBLE
    assert "is pinned to (0, 1)" in result.binding[0]
    assert "Slow-40 has 40.0 GiB" in result.binding[0]


def test_deterministic_runs_with_pins_give_equal_plans() -> None:
    rows = [two_stage(f"c{i}", {1: 50, 2: 30}, {1: 400, 2: 210, 4: 120}) for i in range(6)]
    rows = [
        replace(c, tasks=(replace(c.tasks[0], allowed_devices=(0, 5)), c.tasks[1])) for c in rows
    ]
    problem = problem_of(*rows, nodes=2)
    limits = Limits(time_limit_s=0.2, seed=3, deterministic=True)
    first, second = (cascade_solver().solve(problem, limits) for _ in range(2))
    assert first.plan == second.plan
    assert check_plan(problem, first.plan) == ()


def test_a_search_with_pins_begins_with_a_given_plan_that_keeps_them() -> None:
    problem = problem_of(*(lone(f"c{i}", {1: 100, 2: 60}, 0, 1) for i in range(3)), forbidden=(3,))
    plan = seeded_plan(problem, 1)
    result = cascade_solver("list").solve(problem, SHORT, start_plan=plan)
    assert result.history[1].source == "start plan"
    assert result.objective_us <= plan.makespan_us


def test_quick_plans_and_warm_starts_keep_pins_and_forbidden_devices() -> None:
    rows = [lone(f"c{i}", {1: 100, 2: 60}, 0, 1) for i in range(3)]
    before = problem_of(*rows, lone("free", {1: 100, 2: 60}))
    after = replace(before, forbidden_devices=(0,))
    narrow = replace(after, cascades=tuple(lone(c.id, {1: 100}, 1) for c in after.cascades))
    plan, bound_us = quick_plan(narrow)
    assert check_plan(narrow, plan) == ()
    assert plan.makespan_us == bound_us == 400
    made = warm_start(narrow, Planned(before, seeded_plan(before, 2)))
    assert made is not None
    assert check_plan(narrow, made) == ()


def test_the_checker_names_the_device_and_the_pin() -> None:
    problem = problem_of(lone("a", {1: 100}, 0, 1), forbidden=(2,))
    p = Placement(cascade=0, task=0, devices=(2,), start_us=0, end_us=100)
    plan = CascadePlan(problem_name="hand", placements=(p,))
    found = {v.code: v.text for v in check_plan(problem, plan)}
    assert found[Fault.FORBIDDEN_DEVICE] == "uses device 2, which no task may use"
    assert found[Fault.OUTSIDE_PIN] == "uses device 2, but is pinned to devices 0, 1"
    with pytest.raises(InputError, match=r"may not use the devices \[2\]"):
        simulate(problem, plan)


def test_forbidden_devices_are_no_idle_devices() -> None:
    problem = problem_of(lone("a", {2: 100}), forbidden=(0, 1))
    p = Placement(cascade=0, task=0, devices=(2, 3), start_us=0, end_us=100)
    simulation = simulate(problem, CascadePlan(problem_name="hand", placements=(p,)))
    assert simulation.idle_share == 0
    assert simulation.usable_devices == 2


def test_a_cluster_loses_devices_empty_nodes_and_their_zones() -> None:
    cluster = even_cluster(2, 4)
    assert without_devices(cluster, ()) is cluster
    part = without_devices(cluster, (0, 4, 5, 6, 7))
    assert [node.nic_of_device for node in part.nodes] == [(0, 1, 1)]


def test_plans_go_to_the_usable_part_and_back() -> None:
    problem = problem_of(lone("a", {2: 100}), nodes=2, forbidden=(0, 5))
    part = usable_part(problem)
    assert part.devices == (1, 2, 3, 4, 6, 7)
    p = Placement(cascade=0, task=0, devices=(4, 7), start_us=0, end_us=100)
    plan = CascadePlan(problem_name="hand", placements=(p,))
    inside = part.from_whole(plan)
    assert inside is not None
    assert inside.placements[0].devices == (3, 5)
    assert part.to_whole(inside) == plan
    barred = replace(plan, placements=(replace(p, devices=(5, 6)),))
    assert part.from_whole(barred) is None


def test_both_survive_json() -> None:
    problem = problem_of(lone("a", {1: 100}, 3, 1), forbidden=(2, 0))
    again = problem_from_json(problem_to_json(problem))
    assert again == problem
    assert again.forbidden_devices == (0, 2)
    assert again.cascades[0].tasks[0].allowed_devices == (1, 3)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"forbidden_devices": (4,)}, "no device 4"),
        ({"forbidden_devices": (0, 1, 2, 3)}, "all 4 devices are forbidden"),
        ({"cascades": (lone("a", {1: 1}, 9),)}, "no device 9"),
    ],
)
def test_devices_that_are_not_there_are_refused(change, text) -> None:
    with pytest.raises(InputError, match=text):
        replace(problem_of(lone("a", {1: 100})), **change)


def test_an_empty_pin_is_refused() -> None:
    task = simple_task("denoise", {1: 1})
    with pytest.raises(InputError, match="at least one device"):
        Task(name="denoise", options=task.options, allowed_devices=())
