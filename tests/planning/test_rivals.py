"""Rules of peers for reports: checked times, reasons where there are none, and an end in time."""

import pytest

from arachne_opt.planning.rivals import (
    CASCADE_RULES,
    PIPELINE_RULES,
    cascade_rivals,
    pipeline_rivals,
)
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.registry import cascade_solver
from tests.pipeline_builders import small_problem
from tests.report.subjects import two_by_four


def test_rules_tell_the_times_that_they_have_as_solvers():
    problem = two_by_four().problem
    found = {rival.name: rival for rival in cascade_rivals(problem)}
    assert list(found) == list(CASCADE_RULES)
    for name, rival in found.items():
        assert rival.time_us == cascade_solver(name).solve(problem, Limits()).objective_us
        assert (rival.note == "") == (rival.time_us is not None)
    assert any(rival.time_us for rival in found.values())


def test_rules_for_pipelines_tell_times_or_reasons():
    found = pipeline_rivals(small_problem("A100-40=4,V100-16=4", batch=8))
    assert [rival.name for rival in found] == list(PIPELINE_RULES)
    for rival in found:
        assert (rival.note == "") == (rival.time_us is not None)
    assert any(rival.time_us for rival in found)


@pytest.mark.parametrize("rivals", [cascade_rivals])
def test_rules_that_there_was_no_time_for_are_named(rivals):
    found = rivals(two_by_four().problem, budget_s=1e-9)
    assert all(rival.time_us is None for rival in found)
    assert {rival.note for rival in found} == {"not asked: the time for comparisons was over"}
