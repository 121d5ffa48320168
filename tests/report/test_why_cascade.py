"""The reasons for a degree: numbers of the next ones, what fits, what binds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.report.slack import slack_us
from arachne_opt.report.why_cascade import Reasons, binding
from tests.report.subjects import PATIENT, S, two_by_four
from tests.strategies import FAST, even_cluster, problems_with_plans


def reasons(problem, plan):
    return Reasons(problem, plan, slack_us(problem, plan))


def why(subject, cascade, task):
    found = reasons(subject.problem, subject.plan)
    placement = next(p for p in subject.plan.placements if (p.cascade, p.task) == (cascade, task))
    return found.of(placement)


def test_a_critical_task_says_what_the_next_degrees_would_cost():
    told = why(two_by_four(), 2, 1)
    text = " ".join(told.lines)
    assert "Cascade 2 (mb2) got degree 2 for denoise: 7 s on 2 " in text
    assert "It is critical" in text
    # Degree 1: 12 s instead of 7, 12 device-seconds instead of 14.
    assert "Degree 1 would take 5 s longer and free 2 device-seconds, 250 ms of the whole" in text
    assert "the plan would end up to 5 s later" in text
    # Degree 4: 4 s instead of 7, 16 device-seconds instead of 14.
    assert "Degree 4 would be 3 s shorter, but take 2 device-seconds more" in text
    verdicts = {row[0]: row[4] for row in told.options}
    assert verdicts[2] == "chosen"
    assert verdicts[1] == "ends 5 s too late"
    assert verdicts[4] == "−3 s"


def test_a_task_with_slack_gains_nothing_from_more_devices():
    text = " ".join(why(two_by_four(), 1, 1).lines)
    assert "could end 1 s later without moving the end" in text
    assert "nothing would end earlier, as this task is not critical" in text


def test_a_group_over_nodes_tells_its_penalty():
    subject = two_by_four()
    text = " ".join(why(subject, 3, 1).lines)
    percent = subject.problem.cluster.penalty_ppm(range(8)) / 10**4 - 100
    assert f"slowed by {percent:.0f} % for spanning 2 nodes" in text
    assert "No wider degree is offered." in text


def small(options):
    task = Task(name="denoise", options=options)
    cascade = Cascade(id="a", tasks=(task,), label="1x1x64x64")
    problem = CascadeProblem(name="p", cluster=even_cluster(1, 4), cascades=(cascade,))
    chosen = next(o for o in options if o.degree == 2)
    placement = Placement(
        cascade=0,
        task=0,
        devices=(0, 1),
        start_us=0,
        end_us=chosen.duration_us,
        recompute=chosen.recompute,
    )
    return problem, CascadePlan(problem_name="p", placements=(placement,)), placement


def test_degrees_that_do_not_fit_or_are_too_wide_say_so():
    too_much = FAST.memory_bytes + 1
    problem, plan, placement = small(
        (
            Option(degree=1, duration_us=9, memory_bytes=too_much),
            Option(degree=2, duration_us=5, memory_bytes=10),
            Option(degree=8, duration_us=2, memory_bytes=10),
        )
    )
    told = reasons(problem, plan).of(placement)
    text = " ".join(told.lines)
    assert "Degree 1 does not fit: it needs " in text
    assert "Degree 8 cannot be used: degree 8 is wider than the 4 devices" in text
    assert len(told.options) == 3


def test_the_other_treatment_of_activations_is_told():
    problem, plan, placement = small(
        (
            Option(degree=2, duration_us=5 * S, memory_bytes=4 * 2**30, recompute=True),
            Option(degree=2, duration_us=4 * S, memory_bytes=9 * 2**30),
        )
    )
    placement = replace(placement, recompute=True)
    plan = replace(plan, placements=(placement,))
    told = reasons(problem, plan).of(placement)
    text = " ".join(told.lines)
    assert "Keeping activations at this degree would take 1 s less with 9.0 GiB" in text
    assert [(row[0], row[6], row[5]) for row in told.options] == [
        (2, False, False),
        (2, True, True),
    ]


def test_the_simple_bounds_say_what_binds():
    subject = two_by_four()
    found = binding(subject.problem)
    # Cheapest: encode 2 at degrees 1 and 2, denoise 12 at degree 1; shortest chain 1 + 3.
    assert found.area_us == 4 * 14 * S // 8
    assert found.chain_us == 4 * S
    assert found.by_area


@given(problems_with_plans(max_cascades=4))
@settings(PATIENT, max_examples=20)
def test_every_placement_of_every_plan_has_reasons_and_one_chosen_option(case):
    problem, plan = case
    found = reasons(problem, plan)
    low = binding(problem)
    assert max(low.area_us, low.chain_us) <= plan.makespan_us
    for p in plan.placements:
        told = found.of(p)
        (chosen,) = [row for row in told.options if row[5]]
        assert (chosen[0], chosen[6]) == (p.degree, p.recompute)
        assert all(line.endswith(".") for line in told.lines)
        assert len(told.lines) >= 4


@pytest.mark.parametrize("degree", [1, 4, 8])
def test_the_table_has_every_degree_with_its_device_time(degree):
    told = why(two_by_four(), 2, 1)
    row = next(row for row in told.options if row[0] == degree)
    assert row[2] == degree * row[1]
