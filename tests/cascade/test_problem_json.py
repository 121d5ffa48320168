"""Problems in JSON."""

import json

import pytest
from hypothesis import given, settings

from arachne_opt.cascade.problem import Option
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.errors import InputError
from tests.strategies import problems, random_problem


@settings(max_examples=60, deadline=None)
@given(problems())
def test_any_problem_comes_back_with_names_and_numbering(problem) -> None:
    again = problem_from_json(json.loads(json.dumps(problem_to_json(problem))))
    assert again == problem
    assert again.fingerprint() == problem.fingerprint()


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("format",), "arachne.cascade-problem/9", "format is"),
        (("cascade",), 1, "did you mean 'cascades'?"),
        (("cascades", 0, "tasks", 0, "options", 0, "degree"), 0, "option 0: degree"),
        (("cascades", 0, "tasks", 0, "options", 0, "duration_us"), 1.5, "a whole number"),
        (("cascades", 0, "tasks", 0, "predecessors"), "x", "predecessors: expected a list"),
        (("cascades", 0, "id"), None, "cascade 0: id: expected a string"),
        (("cascades",), [], "at least one cascade"),
        (("cluster", "node"), [], "cluster: no [[node]] is given"),
    ],
)
def test_a_damaged_problem_says_where(path: tuple, value: object, expected: str) -> None:
    damaged = problem_to_json(random_problem(3))
    place = damaged
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError) as caught:
        problem_from_json(damaged)
    assert expected in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, [], "text"])
def test_what_is_no_table_is_no_problem(value: object) -> None:
    with pytest.raises(InputError, match="expected a table of keys"):
        problem_from_json(value)


def test_an_option_of_more_than_a_hundred_years_is_refused():
    Option(degree=1, duration_us=3_000_000_000_000_000)
    with pytest.raises(InputError, match=r"1e\+13 s, more than 100 years"):
        Option(degree=1, duration_us=10**19)
