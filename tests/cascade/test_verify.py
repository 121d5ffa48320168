"""The gate lets a plan pass only where checker, simulator and solver agree."""

from dataclasses import replace

import pytest

from arachne_opt.cascade.verify import verify
from arachne_opt.errors import DisagreementError
from tests.strategies import random_problem, seeded_plan


@pytest.fixture
def problem():
    return random_problem(5)


@pytest.fixture
def plan(problem):
    return seeded_plan(problem, 5)


def test_a_sound_plan_passes_and_gives_its_simulation(problem, plan):
    assert verify(problem, plan, plan.makespan_us).makespan_us == plan.makespan_us


@pytest.mark.parametrize("error_us", [-1, 1])
def test_a_wrong_objective_is_a_disagreement(problem, plan, error_us):
    with pytest.raises(DisagreementError, match=f"plan ends at {plan.makespan_us} us"):
        verify(problem, plan, plan.makespan_us + error_us)


def test_a_plan_with_slack_is_a_disagreement(problem, plan):
    late = [replace(p, start_us=p.start_us + 7, end_us=p.end_us + 7) for p in plan.placements]
    slack = replace(plan, placements=tuple(late))
    with pytest.raises(DisagreementError, match=f"the simulation at {plan.makespan_us} us"):
        verify(problem, slack, slack.makespan_us)


def test_an_illegal_plan_is_a_disagreement_that_lists_the_violations(problem, plan):
    empty = replace(plan, placements=())
    with pytest.raises(DisagreementError, match="missing-task") as error:
        verify(problem, empty, 0)
    missing = sum(1 for _ in problem.tasks())
    assert missing > 5
    assert str(error.value).count("missing-task") == 5
    assert f"and {missing - 5} more" in str(error.value)
