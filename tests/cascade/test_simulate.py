"""The simulation runs a plan as events: order from the plan, times from the problem."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.cascade.simulate import simulate
from arachne_opt.errors import InputError
from tests.strategies import even_cluster, problems_with_plans, simple_task, two_stage


def plan_of(*rows: tuple[int, int, tuple[int, ...], int, int]) -> CascadePlan:
    placements = tuple(
        Placement(cascade=c, task=t, devices=devices, start_us=start_us, end_us=end_us)
        for c, t, devices, start_us, end_us in rows
    )
    return CascadePlan(problem_name="by hand", placements=placements)


def problem_of(*cascades: Cascade, nodes: int = 1, devices: int = 4) -> CascadeProblem:
    cluster = even_cluster(nodes=nodes, devices=devices)
    return CascadeProblem(name="by hand", cluster=cluster, cascades=cascades)


def times(simulation) -> dict[tuple[int, int], tuple[int, int]]:
    return {(t.cascade, t.task): (t.start_us, t.end_us) for t in simulation.tasks}


@given(problems_with_plans())
def test_a_left_shifted_plan_runs_exactly_as_planned(case):
    problem, plan = case
    simulation = simulate(problem, plan)
    assert simulation.makespan_us == plan.makespan_us
    planned = {(p.cascade, p.task): (p.start_us, p.end_us) for p in plan.placements}
    assert times(simulation) == planned


@given(problems_with_plans(), st.integers(1, 10**6))
def test_slack_in_a_plan_is_squeezed_out(case, delay_us):
    problem, plan = case
    late = [
        replace(p, start_us=p.start_us + i * delay_us, end_us=p.end_us + i * delay_us)
        for i, p in enumerate(plan.placements)
    ]
    slack = replace(plan, placements=tuple(late))
    assert simulate(problem, slack).makespan_us == plan.makespan_us


@given(problems_with_plans())
def test_busy_and_idle_time_add_up(case):
    problem, plan = case
    simulation = simulate(problem, plan)
    work_us = sum(len(t.devices) * (t.end_us - t.start_us) for t in simulation.tasks)
    assert sum(simulation.busy_us) == work_us
    usable = set(range(problem.cluster.device_count)) - set(problem.forbidden_devices)
    idle = sum(simulation.idle_shares[d] for d in usable)
    assert idle / len(usable) == pytest.approx(simulation.idle_share)
    assert all(-1e-12 <= share <= 1 for share in simulation.idle_shares)


def test_times_come_from_options_penalty_and_links_not_from_the_plan():
    cascade = two_stage("a", {2: 1000}, {4: 2000}, input_bytes=4 * 50_000)
    problem = problem_of(cascade, nodes=2, devices=2)
    simulation = simulate(problem, plan_of((0, 0, (0, 1), 5, 7), (0, 1, (0, 1, 2, 3), 8, 9)))
    encode, denoise = simulation.tasks
    assert (encode.start_us, encode.end_us, encode.penalty_ppm) == (0, 1000, 1_000_000)
    # Half of 200 kB goes over 50 GB/s to the other node: 2 us after 20 us.
    assert (denoise.handoff_us, denoise.ready_us, denoise.start_us) == (22, 1022, 1022)
    # NIC group 0 on both nodes: 1 + 0.21138606 exp(-1.47904728) = 1.0481653.
    assert denoise.penalty_ppm == 1_048_166
    assert denoise.end_us == 1022 + 2097  # 2096.332 rounded up
    assert simulation.makespan_us == 3119
    assert simulation.busy_us == (3097, 3097, 2097, 2097)
    assert simulation.cross_node_groups == 1
    assert simulation.peak_devices == 4


def test_devices_take_their_tasks_in_the_order_of_the_plan():
    problem = problem_of(two_stage("a", {1: 10}, {1: 100}), two_stage("b", {1: 30}, {1: 5}))
    first_a = plan_of(
        (0, 0, (0,), 0, 1), (0, 1, (0,), 1, 2), (1, 0, (0,), 2, 3), (1, 1, (1,), 3, 4)
    )
    assert times(simulate(problem, first_a)) == {
        (0, 0): (0, 10),
        (0, 1): (10, 110),
        (1, 0): (110, 140),
        (1, 1): (140, 145),
    }
    first_b = plan_of(
        (1, 0, (0,), 0, 1), (0, 0, (0,), 1, 2), (0, 1, (0,), 2, 3), (1, 1, (1,), 3, 4)
    )
    assert times(simulate(problem, first_b)) == {
        (1, 0): (0, 30),
        (0, 0): (30, 40),
        (0, 1): (40, 140),
        (1, 1): (30, 35),
    }


def test_a_task_waits_for_the_last_of_several_inputs():
    tasks = (
        simple_task("text", {1: 70}),
        simple_task("encode", {1: 20}),
        simple_task("denoise", {1: 5}, after=(0, 1)),
    )
    problem = problem_of(Cascade(id="a", tasks=tasks))
    rows = [(0, 0, (0,), 0, 1), (0, 1, (1,), 0, 1), (0, 2, (2,), 1, 2)]
    simulation = simulate(problem, plan_of(*rows))
    assert times(simulation)[0, 2] == (70, 75)


def test_peak_counts_devices_that_run_at_one_time():
    problem = problem_of(two_stage("a", {2: 10}, {1: 10}), two_stage("b", {1: 10}, {1: 10}))
    apart = plan_of(
        (0, 0, (0, 1), 0, 10), (1, 0, (0,), 10, 20), (0, 1, (1,), 10, 20), (1, 1, (0,), 20, 30)
    )
    assert simulate(problem, apart).peak_devices == 2
    together = plan_of(
        (0, 0, (0, 1), 0, 10), (1, 0, (2,), 0, 10), (0, 1, (1,), 10, 20), (1, 1, (0,), 10, 20)
    )
    assert simulate(problem, together).peak_devices == 3


def test_a_task_before_its_own_predecessor_on_a_device_is_a_circle():
    problem = problem_of(two_stage("a", {1: 10}, {1: 10}))
    with pytest.raises(InputError, match="cannot run") as error:
        simulate(problem, plan_of((0, 1, (0,), 0, 10), (0, 0, (0,), 10, 20)))
    assert "cascade 0 denoise needs the result of cascade 0 encode" in str(error.value)
    assert "cascade 0 encode comes after cascade 0 denoise on device 0" in str(error.value)


def test_a_circle_through_two_cascades_names_all_four_tasks_and_no_other():
    chain = {1: 10}, {1: 10}
    problem = problem_of(two_stage("a", *chain), two_stage("b", *chain), two_stage("c", *chain))
    plan = plan_of(
        (1, 1, (0,), 0, 10),
        (0, 0, (0,), 10, 20),
        (0, 1, (1,), 0, 10),
        (1, 0, (1,), 10, 20),
        (2, 0, (2,), 0, 10),
        (2, 1, (0,), 30, 40),
    )
    with pytest.raises(InputError) as error:
        simulate(problem, plan)
    text = str(error.value)
    assert "cascade 0 encode comes after cascade 1 denoise on device 0" in text
    assert "cascade 1 denoise needs the result of cascade 1 encode" in text
    assert "cascade 1 encode comes after cascade 0 denoise on device 1" in text
    assert "cascade 0 denoise needs the result of cascade 0 encode" in text
    assert "cascade 2" not in text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(0, 0, (0,), 0, 1)], "cascade 0, task 1: is not in the plan"),
        ([(0, 0, (0,), 0, 1), (0, 0, (1,), 0, 1)], "is placed twice"),
        ([(1, 0, (0,), 0, 1)], "cascade 1, task 0: is not part of the problem"),
        ([(0, 0, (), 0, 1)], "a group needs devices"),
        ([(0, 0, (1, 1), 0, 1)], "each once"),
        ([(0, 0, (4,), 0, 1)], "the devices are 0 to 3"),
        ([(0, 0, (0, 1), 0, 1)], "no option of degree 2 on Fast-80"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(rows, text):
    problem = problem_of(two_stage("a", {1: 10}, {1: 10}))
    with pytest.raises(InputError, match="cascade") as error:
        simulate(problem, plan_of(*rows))
    assert text in str(error.value)
