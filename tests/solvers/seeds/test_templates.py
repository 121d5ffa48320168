"""The template policy: structures, their estimates, and plans that are never worse."""

import numpy as np
import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.seeds.cells import features, grid, promising
from arachne_opt.solvers.seeds.pricing import price_cells
from arachne_opt.solvers.seeds.structures import structure_of_plan, structures_of
from arachne_opt.solvers.seeds.templates import score
from tests.pipeline_builders import even_pipeline, plan_of, small_problem
from tests.seed_builders import random_template_policy

LONG = Limits(time_limit_s=1e6, deterministic=True, workers=1)
POOLS = ("A100-40=4,V100-16=4", "A100-40=2+2,V100-16=4+1", "A100-40=4,V100-16=2+2,T4=4")


def solved(problem, **options):
    return solve_pipeline(problem, TableCosts(problem), LONG, **options)


def structures(problem):
    space = Space(problem, TableCosts(problem))
    return space, structures_of(space, grid(space))


def test_both_orders_of_two_types_are_among_the_structures():
    _, found = structures(small_problem())
    orders = {tuple(k.device_type for k in found.names(n)) for n in range(len(found.blocks))}
    assert {("A100-40",), ("A100-40", "V100-16"), ("V100-16", "A100-40")} <= orders


@pytest.mark.parametrize("pool", POOLS)
def test_estimates_foretell_exact_prices(pool):
    problem = small_problem(pool, rows=10, batch=64)
    bench = Workbench(problem, TableCosts(problem))
    found = structures_of(bench.space, grid(bench.space))
    cells = promising(found, 60)
    exact = price_cells(bench, found, cells)
    good = np.isfinite(exact)
    assert good.mean() > 0.6
    ratio = exact[good] / found.estimate_s[tuple(cells[good].T)]
    assert 0.8 < np.median(ratio) < 1.4
    # Among the ten best estimates is a plan next to the best of all.
    assert exact[:10].min() <= 1.1 * exact.min()


@pytest.mark.parametrize("options", [PipelineOptions(), PipelineOptions(allow_excess=True)])
def test_features_are_numbers_for_every_cell(options):
    for pool in POOLS:
        space, found = structures(small_problem(pool, options=options))
        cells = promising(found)
        assert np.isfinite(features(space, found, cells)).all()


def test_the_structure_of_a_plan_leaves_out_types_with_next_to_no_devices():
    problem = small_problem()
    plan = plan_of(problem, even_pipeline(problem, 2, *["A100-40"] * 30, microbatch=1, count=1))
    assert [k.device_type for k in structure_of_plan(plan)] == ["A100-40"]


@pytest.mark.parametrize("seed", range(4))
def test_a_policy_that_knows_nothing_never_makes_the_plan_worse(seed):
    problem = small_problem(POOLS[seed % 3], seed=seed, batch=24)
    cold = solved(problem)
    seeded = solved(problem, policy=random_template_policy(problem, seed))
    assert check_plan(problem, seeded.plan) == ()
    assert seeded.iteration_s <= cold.iteration_s * (1 + 1e-9)
    # The search itself saw the same columns as without the policy.
    assert seeded.columns == cold.columns


def test_the_columns_of_the_policy_come_first():
    problem = small_problem(rows=10, batch=64)
    result = solved(problem, policy=random_template_policy(problem))
    assert result.history[0].source == "learned template"


def test_a_problem_without_any_estimate_is_left_to_the_search():
    problem = small_problem(batch=7, options=PipelineOptions(allow_excess=False))
    policy = random_template_policy(small_problem())
    cold = solved(problem)
    assert solved(problem, policy=policy).iteration_s == cold.iteration_s


def test_the_order_follows_the_predictions():
    problem = small_problem(POOLS[2], rows=10, batch=64)
    space = Space(problem, TableCosts(problem))
    scored = score(space, random_template_policy(problem))
    best = [scored.predicted_s[list(cells)].min() for cells in scored.best_cells]
    assert best == sorted(best)
    assert len(set(scored.order)) == len(scored.order)
