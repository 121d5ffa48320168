"""The peers' rules: legal plans, charged with penalties, and the published figures."""

from pathlib import Path

import pytest

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.importers.instances import PublishedInstance, read_instances
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.baselines.flex_sp import flex_degrees
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import even_cluster, random_problem, two_stage

UNIFORM = ("megatron-uniform", "bucketed-dp", "best-uniform")
RULES = (*UNIFORM, "flex-sp", "flex-sp-milp", "knapformer", "dynamic-cp")


@pytest.fixture(scope="session")
def instances(shared_data: Path) -> tuple[PublishedInstance, ...]:
    return read_instances(shared_data / "cascades", allow_estimates=True)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_gives_a_legal_plan_or_none(rule: str) -> None:
    applied = 0
    for seed in range(60):
        problem = random_problem(seed)
        result = cascade_solver(rule).solve(problem, Limits())
        if result.plan is None:
            assert result.status is Status.NO_PLAN
            continue
        assert result.objective_us is not None
        verify(problem, result.plan, result.objective_us)
        applied += 1
    assert applied > 5


def test_the_best_uniform_degree_is_no_worse_than_the_others(
    instances: tuple[PublishedInstance, ...],
) -> None:
    for instance in instances:
        times = [cascade_solver(r).solve(instance.problem, Limits()).objective_us for r in UNIFORM]
        assert times[2] == min(t for t in times if t is not None)


def test_megatron_figures_are_the_published_ones(instances: tuple[PublishedInstance, ...]) -> None:
    """Groups of 4 or 8 on nodes of 8 pay no penalty, so that the charged figure is the same."""
    seen = 0
    for instance in instances:
        published_us = instance.published_us.get("megatron_lm")
        result = cascade_solver("megatron-uniform").solve(instance.problem, Limits())
        if published_us is not None and result.objective_us is not None:
            assert abs(result.objective_us - published_us) <= 100
            seen += 1
    assert seen >= 10


def test_flex_sp_figures_are_the_published_ones_without_penalty(
    instances: tuple[PublishedInstance, ...],
) -> None:
    seen = 0
    for instance in instances:
        digest = Digest(instance.problem)
        degrees = flex_degrees(digest)
        published_us = instance.published_us.get("flex_sp")
        if degrees is None or published_us is None:
            continue
        costs = []
        for row, degree in zip(digest.cascades, degrees, strict=True):
            modes = [digest.tasks[t].mode(degree, 0) or digest.tasks[t].modes[0] for t in row]
            costs.append(sum(mode.duration_us for mode in modes))
        assert abs(max(costs) - published_us) <= 100
        seen += 1
    assert seen >= 20


def test_cascades_are_dealt_in_order_to_the_groups() -> None:
    cascades = tuple(two_stage(str(i), {2: 100}, {2: 1000}) for i in range(3))
    problem = CascadeProblem(name="three", cluster=even_cluster(devices=4), cascades=cascades)
    result = cascade_solver("bucketed-dp").solve(problem, Limits())
    assert result.plan is not None
    groups = {p.cascade: p.devices for p in result.plan.placements if p.task == 1}
    assert groups == {0: (0, 1), 1: (2, 3), 2: (0, 1)}
    assert result.objective_us == 2200
