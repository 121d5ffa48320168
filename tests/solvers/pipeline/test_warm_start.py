"""Pipeline plans made from those of near problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.registry import pipeline_solver
from arachne_opt.solvers.pipeline.start import without_nodes
from arachne_opt.solvers.pipeline.warm_start import warm_start
from tests.pipeline_builders import even_pipeline, plan_of, random_plan, small_problem

A100 = "A100-40"


def test_a_solved_plan_of_the_same_problem_is_taken_as_it_is() -> None:
    problem = small_problem()
    found = pipeline_solver("portfolio").solve(problem, TableCosts(problem), Limits(time_limit_s=1))
    assert found.plan is not None
    made = warm_start(problem, found.plan)
    assert made is not None
    assert made.pipelines == without_nodes(found.plan).pipelines


def test_the_pipelines_that_fit_stay_and_share_the_batch() -> None:
    before = small_problem(f"{A100}=8")
    pipe = even_pipeline(before, 2, A100, A100, microbatch=2, count=2)
    plan = plan_of(before, pipe, pipe)
    assert not check_plan(before, place(before, plan))
    after = small_problem(f"{A100}=4")
    made = warm_start(after, plan)
    assert made is not None
    assert not check_plan(after, place(after, made))
    assert sum(made.devices_used().values()) <= 4
    assert made.samples == after.global_batch


def test_another_batch_is_dealt_in_proportion() -> None:
    before = small_problem(f"{A100}=4", options=PipelineOptions())
    slow = even_pipeline(before, 2, A100, microbatch=1, count=4)
    fast = even_pipeline(before, 2, A100, microbatch=2, count=6)
    after = replace(before, global_batch=32)
    made = warm_start(after, plan_of(before, slow, fast))
    assert made is not None
    assert made.counts == (8, 12)
    odd = warm_start(replace(before, global_batch=17), plan_of(before, slow, fast))
    assert odd is not None
    assert odd.samples == 17


def test_a_batch_that_does_not_come_out_even_gives_none() -> None:
    before = small_problem(f"{A100}=2", options=PipelineOptions())
    plan = plan_of(before, even_pipeline(before, 1, A100, A100, microbatch=2, count=4))
    assert warm_start(before, plan) is not None
    assert warm_start(replace(before, global_batch=17), plan) is None


@pytest.mark.parametrize("seed", range(15))
def test_what_comes_out_is_legal(seed: int) -> None:
    problem = small_problem(f"{A100}=8,V100-16=8", seed=seed)
    plan = random_plan(problem, seed)
    for pool in (f"{A100}=4,V100-16=4", f"{A100}=8", "V100-16=2+1"):
        after = replace(small_problem(pool, seed=seed), model=problem.model, global_batch=19)
        made = warm_start(after, plan)
        if made is not None:
            assert not check_plan(after, place(after, made))
