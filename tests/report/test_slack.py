"""Slack is exactly the delay that a task may have; critical tasks hold the end."""

from dataclasses import replace

from hypothesis import given, settings

from arachne_opt.report.slack import critical_path, slack_us
from tests.report.subjects import PATIENT, S, two_by_four
from tests.strategies import problems_with_plans


def end_with_delay(problem, plan, late, delay_us):
    """End of the plan when one task takes longer and none starts earlier than planned."""
    placed = {(p.cascade, p.task): p for p in plan.placements}
    ends, free = {}, {}
    for p in plan.placements:
        key = p.cascade, p.task
        task = problem.cascades[p.cascade].tasks[p.task]
        start = max([p.start_us, *(free.get(d, 0) for d in p.devices)])
        for before in task.predecessors:
            source = placed[p.cascade, before]
            moved = problem.cluster.handoff_us(task.input_bytes, source.devices, p.devices)
            start = max(start, ends[p.cascade, before] + moved)
        ends[key] = start + p.end_us - p.start_us + (delay_us if key == late else 0)
        free |= dict.fromkeys(p.devices, ends[key])
    return max(ends.values())


@given(problems_with_plans(max_cascades=4))
@settings(PATIENT, max_examples=20)
def test_a_task_may_be_late_by_its_slack_and_not_by_a_microsecond_more(case):
    problem, plan = case
    for key, slack in slack_us(problem, plan).items():
        assert end_with_delay(problem, plan, key, slack) == plan.makespan_us
        assert end_with_delay(problem, plan, key, slack + 1) == plan.makespan_us + 1


@given(problems_with_plans(max_cascades=4))
@settings(PATIENT, max_examples=20)
def test_the_critical_path_ends_last_and_has_no_slack(case):
    problem, plan = case
    slack = slack_us(problem, plan)
    path = critical_path(problem, plan, slack)
    assert path[-1].end_us == plan.makespan_us
    assert all(slack[p.cascade, p.task] == 0 for p in path)
    assert [p.start_us for p in path] == sorted(p.start_us for p in path)


def test_slack_of_a_plan_by_hand():
    subject = two_by_four()
    slack = slack_us(subject.problem, subject.plan)
    assert slack[2, 0] == slack[2, 1] == slack[3, 1] == 0
    assert slack[0, 1] == 4 * S
    assert slack[1, 1] == S
    path = critical_path(subject.problem, subject.plan, slack)
    assert [(p.cascade, p.task) for p in path] == [(2, 0), (2, 1), (3, 1)]


def test_a_gap_before_a_task_is_slack_of_those_before_it():
    subject = two_by_four()
    last = subject.plan.placements[-1]
    later = replace(last, start_us=last.start_us + S, end_us=last.end_us + S)
    plan = replace(subject.plan, placements=(*subject.plan.placements[:-1], later))
    assert slack_us(subject.problem, plan)[2, 1] == S
