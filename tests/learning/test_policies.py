"""Policies are trained, scored on what was held out, and kept only where they are better."""

import dataclasses

import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError
from arachne_opt.learning import cascade_training, policies, template_training
from arachne_opt.learning.jobs import Workers
from arachne_opt.learning.lessons import CascadeCase, split
from arachne_opt.learning.policies import Score, learn
from arachne_opt.learning.stored import stored_cases
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.planning.policies import policy_in_use
from arachne_opt.planning.service import PlanService
from arachne_opt.records import PolicyRecord
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.seeds import shipped
from tests.pipeline_builders import small_problem
from tests.seed_builders import random_cascade_policy, random_template_policy
from tests.strategies import random_problem

_PLANS = 10
QUICK = Limits(time_limit_s=0.02, deterministic=True, workers=1)


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    monkeypatch.setattr(template_training, "_EPOCHS", 10)
    monkeypatch.setattr(cascade_training, "_EPOCHS", 5)


@pytest.fixture
def store(tmp_path):
    with PlanStore.open(tmp_path / "plans.db") as found:
        yield found


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A database with ten plans of either kind."""
    with PlanStore.open(tmp_path_factory.mktemp("planned") / "plans.db") as store:
        cascades = (p for p in map(random_problem, range(99)) if not p.pinned)
        for _, problem in zip(range(_PLANS), cascades, strict=False):
            PlanService(store, seeds=False).plan_cascade(problem, QUICK)
        for seed in range(_PLANS):
            problem = small_problem(seed=seed, rows=4, batch=8)
            PipelineService(store, seeds=False).plan(problem, QUICK)
        yield store


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cascades", "templates"])
def test_what_was_solved_becomes_examples(planned, name):
    cases = stored_cases(planned, name, Workers())
    assert len(cases) == _PLANS
    training, held_out = split(cases)
    assert len(held_out) == 2
    assert len(training) == 8
    again = stored_cases(planned, name, Workers())
    assert [c.problem.fingerprint() for c in cases] == [c.problem.fingerprint() for c in again]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cascades", "templates"])
def test_a_policy_is_learned_from_stored_plans(planned, name):
    cases = stored_cases(planned, name, Workers())
    found = learn(name, cases, seed=0, current=None, refresh=True, report={"command": "x"})
    assert found.better
    assert found.policy.report["held_out"] == 2
    assert (
        found.data
        == learn(name, cases, seed=0, current=None, refresh=True, report={"command": "x"}).data
    )


@pytest.mark.slow
def test_a_refresh_goes_on_from_the_weights_in_use(planned):
    cases = stored_cases(planned, "templates", Workers())
    first = learn("templates", cases, seed=0, current=None, refresh=False, report={})
    other = learn("templates", cases, seed=9, current=first.policy, refresh=True, report={})
    # Whatever the seed, the same weights were the beginning.
    third = learn("templates", cases, seed=1, current=first.policy, refresh=True, report={})
    assert other.policy.version == third.policy.version != first.policy.version


def test_a_refresh_that_is_no_better_is_rejected(planned, monkeypatch):
    cases = stored_cases(planned, "templates", Workers())
    current = random_template_policy(cases[0].problem)
    scores = {current.version: 1.0}
    monkeypatch.setattr(
        policies,
        "score_policy",
        lambda _, policy: Score(value=scores.get(policy.version, 1.0), details={}),
    )
    assert not learn("templates", cases, seed=0, current=current, refresh=False, report={}).better
    scores[current.version] = 1.1
    assert learn("templates", cases, seed=0, current=current, refresh=False, report={}).better


def test_few_plans_are_too_few(store):
    PlanService(store, seeds=False).plan_cascade(random_problem(0), QUICK)
    cases = stored_cases(store, "cascades", Workers())
    with pytest.raises(InputError, match="1 plans are too few"):
        learn("cascades", cases, seed=0, current=None, refresh=True, report={})


def test_the_newest_usable_policy_of_the_database_is_used(store, monkeypatch, caplog):
    monkeypatch.setattr(shipped, "FOLDER", store.database.location.path.parent / "nothing")
    problem = small_problem()
    assert policy_in_use(store, "templates") is None
    kept = []
    for seed in (1, 2):
        policy = random_template_policy(problem, seed)
        data = policies.pack_policy("templates", {}, policy.tensors)
        store.add_policy(
            PolicyRecord(name="templates", version=policy.version, metrics={}, artifact=data)
        )
        kept.append((policy, data))
    assert policy_in_use(store, "templates").version == kept[1][0].version
    assert policy_in_use(store, "templates", wanted=False) is None
    broken = PolicyRecord(
        name="templates", version="templates-broken", metrics={}, artifact=kept[0][1][:-9]
    )
    store.add_policy(broken)
    assert policy_in_use(store, "templates").version == kept[1][0].version
    assert "policy templates-broken: the policy file is damaged" in caplog.text


def test_a_broken_policy_does_not_keep_anybody_from_planning(store, caplog):
    problem = small_problem()
    cold = PipelineService(None, seeds=False).plan(problem, QUICK)
    store.add_policy(
        PolicyRecord(name="templates", version="t-1", metrics={}, artifact=b"not a policy")
    )
    answer = PipelineService(store).plan(problem, QUICK)
    assert answer.verdict.price.iteration_s <= cold.verdict.price.iteration_s * (1 + 1e-9)
    assert "policy t-1" in caplog.text


def test_a_cascade_lesson_repeats_the_plan():
    problem = random_problem(1)
    answer = PlanService(None, seeds=False).plan_cascade(problem, QUICK)
    lesson = cascade_training.cascade_lesson(problem, answer.plan)
    assert lesson.picked.sum() == len(lesson.start)
    case = CascadeCase(problem=problem, plan=answer.plan)
    assert dataclasses.replace(case) is not None
    assert cascade_training.examine_cascades(problem, random_cascade_policy(problem)) >= 1


def test_a_template_lesson_needs_something_that_fits():
    problem = small_problem()
    assert template_training.lesson(problem, [(0, 0, 0, None)]) is None
    assert TableCosts(problem).kinds
