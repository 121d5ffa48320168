"""Our pipeline plans beside rules and stored figures."""

import pytest

from arachne_opt.bench.pipelines import (
    compare_pipelines,
    summarise_ablations,
    summarise_pipelines,
)
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.importers.pipeline_scenarios import PeerFigure, Scenario
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.pipeline.registry import pipeline_rule_names
from arachne_opt.solvers.pipeline.restrictions import ABLATIONS
from tests.pipeline_builders import small_problem

LIMITS = Limits(time_limit_s=2)
POOL = "A100-40=8,V100-16=8"


@pytest.fixture(scope="module")
def problem():
    return small_problem(POOL, batch=48, rows=9, seed=3)


@pytest.fixture(scope="module")
def row(problem):
    scenario = Scenario(
        name="S",
        global_batches={problem.model.name: 48},
        pools={"default": POOL},
        gpus_per_node=4,
        peers={"Slow": PeerFigure(status="ok", iteration_s=1e3), "None": PeerFigure(status="no")},
        best_peer=("Slow", 1e3),
        best_known_s=500.0,
    )
    return compare_pipelines(problem, LIMITS, scenario=scenario, exact=True, ablation=True)


def test_every_rule_and_every_stored_figure_is_compared(row):
    assert set(row.rules_s) == set(pipeline_rule_names())
    ratios = summarise_pipelines([row])
    assert ratios["Slow"].mean == pytest.approx(row.iteration_s / 1e3, rel=1e-4)
    assert ratios["best known"].mean == pytest.approx(row.iteration_s / 500, rel=1e-4)
    assert "None" not in ratios
    assert ratios["best rule"].worst <= 1


def test_the_bound_lies_below_and_the_exact_plan_above(row):
    assert row.result.bound_s <= row.iteration_s <= row.exact_s * (1 + 1e-9)


def test_no_ablation_gains(row):
    assert set(row.ablations_s) == set(ABLATIONS)
    for name, ratios in summarise_ablations([row]).items():
        assert ratios.best > 1 - 1e-3, name


def _plan(problem, name):
    costs = TableCosts(problem)
    return solve_pipeline(problem, costs, LIMITS, restrictions=ABLATIONS[name]).plan


@pytest.mark.parametrize("seed", range(3))
def test_plans_keep_to_their_restrictions(seed):
    problem = small_problem(POOL, batch=48, rows=9, seed=seed)
    even = _plan(problem, "even layers only")
    for pipe in even.pipelines:
        sizes = [s.row_count for s in pipe.stages]
        assert max(sizes) - min(sizes) <= 1
    kinds = {k for _, _, s in _plan(problem, "one tp per type only").stages() for k in s.kinds}
    assert len({(k.device_type, k.tp) for k in kinds}) == len({k.device_type for k in kinds})
    for _, _, stage in _plan(problem, "pure stages only").stages():
        assert len({k.device_type for k in stage.kinds}) == 1
    for pipe in _plan(problem, "equal dp only").pipelines:
        assert len({len(s.replicas) for s in pipe.stages}) == 1


def test_an_infeasible_scenario_says_what_binds():
    problem = small_problem("V100-16=1", rows=40, batch=16)
    row = compare_pipelines(problem, LIMITS)
    assert row.result is None
    assert row.binding
    assert row.iteration_s is None
