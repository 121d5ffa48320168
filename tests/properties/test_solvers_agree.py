"""Every solver's plan passes checker and simulator, to the microsecond."""

import pytest

from arachne_opt.cascade.verify import verify
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.registry import SEARCHES, cascade_solver, cascade_solver_names
from tests.strategies import random_problem

SMALL = {"max_nodes": 3, "max_devices": 4, "max_cascades": 4}


def solve_and_verify(name: str, seeds: range) -> None:
    limits = Limits(time_limit_s=0.1, workers=1)
    for seed in seeds:
        problem = random_problem(seed, **SMALL)
        result = cascade_solver(name).solve(problem, limits)
        if result.plan is None and name not in SEARCHES:
            continue  # a peer's rule does not apply to every problem
        assert result.plan is not None, f"no plan for the feasible problem {seed}"
        simulation = verify(problem, result.plan, result.objective_us)
        assert result.bound_us <= simulation.makespan_us
        if result.status is Status.OPTIMAL:
            assert result.bound_us == result.objective_us


@pytest.mark.parametrize("name", cascade_solver_names())
def test_plans_of_random_problems_are_confirmed(name):
    solve_and_verify(name, range(20))


@pytest.mark.slow
@pytest.mark.parametrize("name", cascade_solver_names())
def test_plans_of_200_random_problems_are_confirmed(name):
    solve_and_verify(name, range(1000, 1200))


@pytest.mark.parametrize("name", cascade_solver_names())
def test_infeasible_problems_are_proven_so(name):
    for seed in range(10):
        problem = random_problem(seed, feasible=False, **SMALL)
        result = cascade_solver(name).solve(problem, Limits(time_limit_s=5, workers=1))
        assert result.status is Status.INFEASIBLE
        assert result.plan is None
        assert result.binding
