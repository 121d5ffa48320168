"""The checker accepts legal plans and lists every fault of the others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne_opt.cascade.check import Fault, check_plan
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from tests.strategies import (
    FAST,
    GIB,
    SLOW,
    even_cluster,
    problems_with_plans,
    two_stage,
)

Case = tuple[CascadeProblem, CascadePlan]


def codes(problem: CascadeProblem, plan: CascadePlan) -> list[Fault]:
    return [violation.code for violation in check_plan(problem, plan)]


def swap(plan: CascadePlan, index: int, **changes: object) -> CascadePlan:
    rows = list(plan.placements)
    rows[index] = replace(rows[index], **changes)
    return replace(plan, placements=tuple(rows))


@given(problems_with_plans())
def test_legal_plans_have_no_violation(case):
    assert check_plan(*case) == ()


@given(problems_with_plans(), st.integers(1, 10**6))
def test_later_starts_and_longer_runs_are_legal(case, delay_us):
    problem, plan = case
    last = len(plan.placements) - 1
    moved = [
        replace(p, start_us=p.start_us + i * delay_us, end_us=p.end_us + i * delay_us)
        for i, p in enumerate(plan.placements)
    ]
    late = replace(plan, placements=tuple(moved))
    long = swap(late, last, end_us=late.placements[last].end_us + delay_us)
    assert check_plan(problem, long) == ()


# ----------------------------------------------------------- one plan by hand, exact verdicts


@pytest.fixture
def case() -> Case:
    """Two cascades on 2 nodes of 4 devices; nothing touches the last two devices."""
    cascades = (
        two_stage("a", {1: 1000, 2: 600}, {2: 4000, 4: 2500}, input_bytes=0),
        two_stage("b", {1: 1000}, {2: 4000}, input_bytes=450_000),
    )
    cluster = even_cluster(nodes=2, devices=4)
    problem = CascadeProblem(name="by hand", cluster=cluster, cascades=cascades)
    # cascade, task, devices, start, end; b hands 450 kB over 450 GB/s to a device: 5 us + 1 us.
    rows = [
        (0, 0, (0, 1), 0, 600),
        (0, 1, (0, 1, 2, 3), 600, 3100),
        (1, 0, (4,), 0, 1000),
        (1, 1, (4, 5), 1006, 5006),
    ]
    return problem, plan_of(rows)


def plan_of(rows: list[tuple[int, int, tuple[int, ...], int, int]]) -> CascadePlan:
    placements = tuple(
        Placement(cascade=c, task=t, devices=devices, start_us=start_us, end_us=end_us)
        for c, t, devices, start_us, end_us in rows
    )
    return CascadePlan(problem_name="by hand", placements=placements)


ROWS = {(0, 0): 0, (1, 0): 1, (0, 1): 2, (1, 1): 3}  # place of each task in the sorted plan


def test_the_plan_by_hand_is_legal(case):
    assert check_plan(*case) == ()


@pytest.mark.parametrize(
    ("task", "changes", "code", "text"),
    [
        ((0, 0), {"devices": (0, 6)}, Fault.TOO_SHORT, "devices 0, 6 takes 0.000600 s x 1.211387"),
        ((0, 0), {"devices": (0, 1, 2)}, Fault.NO_SUCH_OPTION, "degree 3 on Fast-80; it has 1, 2"),
        ((0, 0), {"end_us": 599}, Fault.TOO_SHORT, "lasts 0.000599 s; degree 2 on devices 0, 1"),
        ((0, 1), {"start_us": 3100, "end_us": 600}, Fault.END_BEFORE_START, "ends at 0.000600 s"),
        ((1, 1), {"start_us": 1005}, Fault.PRECEDENCE, "hands over in 0.000006 s"),
        ((1, 1), {"devices": ()}, Fault.NO_DEVICES, "runs on no device"),
        ((1, 1), {"devices": (4, 8)}, Fault.DEVICE_OUT_OF_RANGE, "no device 8: the devices are 0"),
        ((1, 1), {"devices": (4, 4)}, Fault.REPEATED_DEVICE, "has device 4 more than once"),
    ],
)
def test_one_fault_gives_one_violation_that_names_place_and_numbers(
    case, task, changes, code, text
):
    problem, plan = case
    violations = check_plan(problem, swap(plan, ROWS[task], **changes))
    assert [v.code for v in violations] == [code]
    stage = ("encode", "denoise")[task[1]]
    assert violations[0].where == f"cascade {task[0]} ({'ab'[task[0]]}), {stage}"
    assert text in violations[0].text


def test_an_overlap_names_both_tasks_and_all_shared_devices(case):
    problem, plan = case
    moved = swap(plan, ROWS[1, 1], devices=(2, 3), start_us=1500, end_us=5500)
    (violation,) = check_plan(problem, moved)
    assert violation.code is Fault.OVERLAP
    expected = "starts at 0.001500 s, but cascade 0 (a), denoise holds devices 2, 3 until"
    assert expected in violation.text


def test_every_pair_of_tasks_on_a_device_is_listed():
    cascades = tuple(two_stage(name, {1: 100}, {1: 100}) for name in "abc")
    problem = CascadeProblem(name="by hand", cluster=even_cluster(), cascades=cascades)
    rows = [(c, 0, (0,), 10 * c, 100 + 10 * c) for c in range(3)]
    rows += [(c, 1, (c + 1,), 200, 300) for c in range(3)]
    assert codes(problem, plan_of(rows)) == [Fault.OVERLAP] * 3


def test_all_faults_of_a_plan_are_listed(case):
    problem, _ = case
    rows = [
        (0, 0, (0, 0), -5, 600),
        (0, 1, (0, 1, 2, 3), 500, 900),
        (1, 1, (3, 9), 700, 4700),
        (1, 1, (4, 5), 800, 4800),
        (2, 0, (6,), 0, 1000),
        (0, 7, (6,), 0, 1000),
    ]
    found = codes(problem, replace(plan_of(rows), problem_name="other"))
    assert sorted(found) == sorted(
        [
            Fault.WRONG_PROBLEM,
            Fault.REPEATED_DEVICE,
            Fault.NEGATIVE_START,
            Fault.TOO_SHORT,
            Fault.PRECEDENCE,
            Fault.OVERLAP,  # a's encode and denoise on device 0
            Fault.OVERLAP,  # a's and b's denoise on device 3
            Fault.DEVICE_OUT_OF_RANGE,
            Fault.DUPLICATE_TASK,
            Fault.MISSING_TASK,
            Fault.UNKNOWN_CASCADE,
            Fault.UNKNOWN_TASK,
        ]
    )


def test_an_empty_plan_misses_every_task(case):
    problem, plan = case
    found = codes(problem, replace(plan, placements=()))
    assert found == [Fault.MISSING_TASK] * 4


def test_an_option_of_another_type_does_not_count():
    cluster = even_cluster(nodes=2, devices=2)
    nodes = (cluster.nodes[0], replace(cluster.nodes[1], device_type=SLOW))
    cascade = two_stage("a", {1: 100}, {1: 100})
    options = tuple(replace(o, device_type=FAST.name) for o in cascade.tasks[0].options)
    tasks = (replace(cascade.tasks[0], options=options), cascade.tasks[1])
    problem = CascadeProblem(
        name="by hand",
        cluster=replace(cluster, nodes=nodes),
        cascades=(replace(cascade, tasks=tasks),),
    )
    rows = [(0, 0, (2,), 0, 100), (0, 1, (2,), 100, 200)]
    (violation,) = check_plan(problem, plan_of(rows))
    assert violation.code is Fault.NO_SUCH_OPTION
    assert "no option of degree 1 on Slow-40; it has none there" in violation.text


def test_memory_is_told_in_units_for_people():
    cascade = two_stage("a", {1: 100}, {1: 100})
    tasks = [
        replace(t, options=(replace(t.options[0], memory_bytes=93 * GIB),)) for t in cascade.tasks
    ]
    problem = CascadeProblem(
        name="by hand", cluster=even_cluster(), cascades=(replace(cascade, tasks=tuple(tasks)),)
    )
    violations = check_plan(problem, plan_of([(0, 0, (2,), 0, 100), (0, 1, (2,), 100, 200)]))
    assert [v.code for v in violations] == [Fault.MEMORY] * 2
    assert str(violations[0]) == (
        "[memory] cascade 0 (a), encode: degree 1 needs 93.0 GiB per device, Fast-80 has 80.0 GiB"
    )
