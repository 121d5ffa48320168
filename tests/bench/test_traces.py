"""Planners on a cluster that changes: what is charged and what counts."""

import pytest

from arachne_opt.bench.traces import Decision, by_rule, ours, play
from arachne_opt.errors import NoPlanError
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.cluster_change import problem_on
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.relayout import Relayout
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.registry import pipeline_rule_names
from tests.pipeline_builders import small_problem

LIMITS = Limits(time_limit_s=1)
EVENT_S = 60.0


@pytest.fixture(scope="module")
def problems():
    base = small_problem("A100-40=8,V100-16=8", batch=64)
    pools = ("A100-40=8,V100-16=8", "A100-40=4,V100-16=4", "V100-16=8", "A100-40=8,V100-16=8")
    return [problem_on(base, parse_pool(pool, 4)) for pool in pools]


@pytest.fixture(scope="module")
def played(problems):
    return play("ours", ours(PipelineService(None), LIMITS), problems, EVENT_S)


def test_every_plan_is_for_the_devices_that_are_there(problems, played):
    assert played.without_plan == 0
    for problem, event in zip(problems, played.events, strict=True):
        assert not check_plan(problem, event.decision.plan)


def test_planning_and_moving_are_charged(problems, played):
    for problem, event in zip(problems, played.events, strict=True):
        left_s = EVENT_S - event.planning_s - event.decision.relayout.seconds
        done = int(left_s / event.decision.iteration_s)
        assert event.samples == done * problem.global_batch
    assert played.events[0].decision.relayout.seconds == 0
    assert played.relayout_s > 0


def without_planning(played):
    """Samples if planning took no time, which is what differs most on so small problems."""
    decisions = [e.decision for e in played.events if e.decision]
    return sum((EVENT_S - d.relayout.seconds) / d.iteration_s for d in decisions)


@pytest.mark.parametrize("name", pipeline_rule_names())
def test_planning_aside_our_planner_trains_at_least_as_much_as_every_rule(problems, played, name):
    other = play(name, by_rule(name, LIMITS), problems, EVENT_S)
    assert without_planning(other) <= without_planning(played) * (1 + 1e-9)


def test_without_a_plan_nothing_is_trained_until_the_next_change(problems, played):
    plan = played.events[-1].decision.plan

    def decide(problem, running, event_s):
        if problem.cluster.name == "V100-16=8":
            raise NoPlanError("none")
        return Decision(plan=plan, iteration_s=1.0, relayout=Relayout(), choice="new")

    result = play("other", decide, problems, EVENT_S)
    assert result.without_plan == 1
    assert result.events[2].samples == 0
    assert result.events[3].samples > 0
