"""The nearest plan that another trainer can be told."""

import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InfeasibleError, NoPlanError
from arachne_opt.exporters.grid import losses
from arachne_opt.exporters.trainers import TRAINERS
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.planning.even_grids import all_layouts, plan_of_layout
from arachne_opt.planning.expressible import nearest
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.solvers.base import Limits
from tests.pipeline_builders import small_problem

LIMITS = Limits(time_limit_s=2.0)
FREE = PipelineOptions(allow_excess=True, recomputation=True, zero1=True)
PROBLEMS = {
    "two types": small_problem(seed=2),
    "experts": small_problem(seed=5, rows=8, experts=4),
    "all options": small_problem(seed=1, rows=8, options=FREE),
    "odd nodes": small_problem("A100-40=4+2,V100-16=4+4", seed=4, rows=10),
}


NAMES = [
    name if name == "two types" else pytest.param(name, marks=pytest.mark.slow) for name in PROBLEMS
]


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize("name", NAMES)
def test_the_nearest_plan_is_legal_priced_and_loses_nothing(trainer: str, name: str):
    problem, abilities = PROBLEMS[name], TRAINERS[trainer].abilities
    found = nearest(problem, abilities, LIMITS)
    assert losses(found.plan, abilities) == ()
    assert not check_plan(problem, found.plan)
    assert found.iteration_s == price_plan(problem, found.plan).iteration_s
    assert all(r.node is not None for _, _, s in found.plan.stages() for r in s.replicas)


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_that_takes_any_cuts_is_never_behind_one_that_makes_its_own(name: str):
    free = nearest(PROBLEMS[name], TRAINERS["megatron"].abilities, LIMITS).iteration_s
    for trainer in ("accelerate", "deepspeed"):
        cut = nearest(PROBLEMS[name], TRAINERS[trainer].abilities, LIMITS).iteration_s
        assert free <= cut * (1 + 1e-9)


@pytest.mark.parametrize("trainer", ["accelerate", "deepspeed"])
@pytest.mark.parametrize("seed", range(2))
def test_the_best_of_all_grids_with_the_cuts_of_a_trainer_is_found(trainer: str, seed: int):
    problem = small_problem("A100-40=4,T4=2,V100-16=2", seed=seed, rows=7)
    rule = TRAINERS[trainer].abilities.cuts
    assert rule is not None
    layouts = all_layouts(problem, TableCosts(problem), rule)
    plans = [plan for layout in layouts if (plan := plan_of_layout(problem, layout, rule))]
    best_s = min(price_plan(problem, plan).iteration_s for plan in plans)
    found = nearest(problem, TRAINERS[trainer].abilities, LIMITS)
    # Estimates leave out optimizer updates, which decide between grids that are as good.
    assert found.iteration_s <= best_s * 1.01


def test_a_plan_that_loses_nothing_is_found_again_or_bettered():
    problem = PROBLEMS["two types"]
    answer = PipelineService(None).plan(problem, LIMITS)
    if losses(answer.plan, TRAINERS["megatron"].abilities):
        pytest.skip("the best plan of this problem is no grid")
    found = nearest(problem, TRAINERS["megatron"].abilities, LIMITS)
    assert found.iteration_s <= answer.verdict.price.iteration_s * (1 + 1e-9)


def test_where_nothing_fits_that_is_said():
    none = small_problem(rows=7, batch=7, options=PipelineOptions(microbatches=(2,)))
    with pytest.raises(NoPlanError, match="no plan was found that Megatron-LM can be told"):
        nearest(none, TRAINERS["megatron"].abilities, LIMITS)
    with pytest.raises(InfeasibleError, match=r"accelerate can be told, with .* try --to megatron"):
        nearest(none, TRAINERS["accelerate"].abilities, LIMITS)
