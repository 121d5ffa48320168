"""Plans and problems survive renumbering and JSON."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import from_canonical, plan_from_json, to_canonical
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.errors import InputError
from tests.strategies import problems, problems_with_plans, random_problem, renumber, seeded_plan


@given(problems_with_plans(), st.integers(0, 2**16))
def test_a_plan_is_legal_in_every_numbering_of_its_problem(case, seed):
    problem, plan = case
    other = renumber(problem, seed)
    moved = from_canonical(to_canonical(plan, problem), other)
    assert check_plan(other, moved) == ()
    assert moved.makespan_us == plan.makespan_us
    assert sorted(p.degree for p in moved.placements) == sorted(p.degree for p in plan.placements)


@given(problems_with_plans())
def test_a_plan_returns_unchanged_from_its_own_canonical_form(case):
    problem, plan = case
    assert from_canonical(to_canonical(plan, problem), problem) == plan


@given(problems_with_plans(), st.integers(0, 2**16))
def test_two_numberings_share_one_canonical_plan(case, seed):
    problem, plan = case
    other = renumber(problem, seed)
    stored = to_canonical(plan, problem)
    assert to_canonical(from_canonical(stored, other), other) == stored


@given(problems_with_plans())
def test_plans_survive_json_to_the_microsecond(case):
    problem, plan = case
    assert plan_from_json(json.loads(json.dumps(plan.to_json(problem))), problem) == plan


@given(st.integers(0, 10**14))
def test_times_up_to_three_years_survive_json(start_us):
    problem = random_problem(3)
    plan = seeded_plan(problem, 3)
    moved = [
        replace(p, start_us=p.start_us + start_us, end_us=p.end_us + start_us)
        for p in plan.placements
    ]
    late = replace(plan, placements=tuple(moved))
    assert plan_from_json(json.loads(json.dumps(late.to_json(problem))), problem) == late


@given(problems())
def test_problems_survive_json_with_names_and_numbering(problem):
    back = problem_from_json(json.loads(json.dumps(problem_to_json(problem))))
    assert back == problem
    assert back.fingerprint() == problem.fingerprint()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": "arachne.cascade-plan/3"}, "not a plan of format"),
        ({"runs": [{"task": 0}]}, "malformed run"),
        ({"runs": None}, "malformed run"),
    ],
)
def test_another_format_is_refused(change, text):
    problem = random_problem(3)
    value = seeded_plan(problem, 3).to_json(problem) | change
    with pytest.raises(InputError, match=text):
        plan_from_json(value, problem)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("task", 99, "no number 99"),
        ("stage", "audio", "has no stage 'audio'"),
        ("start_s", "soon", "malformed run"),
        ("end_s", float("inf"), "malformed run"),
        ("gpus", 3, "malformed run"),
    ],
)
def test_a_bad_run_is_refused_with_its_reason(field, value, text):
    problem = random_problem(3)
    plan = seeded_plan(problem, 3).to_json(problem)
    plan["runs"][0][field] = value
    with pytest.raises(InputError, match=text):
        plan_from_json(plan, problem)
