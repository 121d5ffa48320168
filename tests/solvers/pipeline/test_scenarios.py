"""The public scenarios: no worse than the best known plans, and seen alike by both prices."""

import math

import pytest

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.importers.pipeline_scenarios import read_scenario
from arachne_opt.importers.scenario_problems import scenario_problem
from arachne_opt.pipeline.problem import PipelineOptions
from arachne_opt.pipeline.verify import verify
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.pipeline.registry import pipeline_rule_names, pipeline_solver

EXCESS = PipelineOptions(allow_excess=True)


@pytest.fixture
def problem_of(shared_folder):
    def build(name, options=EXCESS):
        scenario = read_scenario(f"{shared_folder}/judges/scenarios_pipeline.json:{name}")
        folder = shared_folder / "data" / "pipelines" / "sailor"
        return scenario_problem(scenario, folder, options=options)

    return build


def solve(problem, name="portfolio"):
    solver = pipeline_solver(name)
    return solver.solve(problem, TableCosts(problem), Limits(time_limit_s=30))


# What any other planner or a small enumeration reached (pipeline scenarios of 2026-11-29).
BEST_KNOWN_S = {
    "D1": 42.859659, "D2": 22.453885, "D3": 16.230672, "D4": 12.061932, "D5": 8.830574,
    "D6": 6.642773, "D7": 5.173129, "D8": 3.707761, "D9": 286.253051, "D10": 144.461006,
    "D11": 109.904981, "D12": 73.650337, "D13": 57.25469, "D14": 38.332865, "D15": 31.078942,
    "D16": 20.771292,
}  # fmt: skip
# What we reached before with three and with twelve pipelines of two shapes.
REACHED_S = {"D2": 22.3329, "D10": 138.614}
QUICK = ("D1", "D9", "D10")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in BEST_KNOWN_S]
)
def test_plans_of_two_types_reach_the_best_known(problem_of, name):
    problem = problem_of(name)
    result = solve(problem)
    verify(problem, result.plan, result.iteration_s)
    assert result.iteration_s <= REACHED_S.get(name, BEST_KNOWN_S[name]) * (1 + 1e-6)
    assert result.cautious_s <= 1.01 * result.iteration_s


@pytest.mark.slow
def test_three_types_are_used_to_advantage(problem_of):
    problem = problem_of("E1c")
    result = solve(problem)
    verify(problem, result.plan, result.iteration_s)
    assert result.iteration_s <= 83.201079 / 2
    assert len(result.plan.devices_used()) == 3


def test_a_model_too_large_for_its_memory_rule_is_proven_so_and_recomputation_helps(problem_of):
    result = solve(problem_of("E2"))
    assert result.status is Status.INFEASIBLE
    assert any("A100-40" in line and "0.55 GiB short" in line for line in result.binding)
    options = PipelineOptions(allow_excess=True, recomputation=True)
    problem = problem_of("E2", options)
    helped = solve(problem)
    verify(problem, helped.plan, helped.iteration_s)


@pytest.mark.slow
def test_no_peer_rule_is_better_than_the_planner(problem_of):
    ratios = []
    for name in ("D2", "D7", "D12"):
        problem = problem_of(name)
        ours = solve(problem).iteration_s
        rules = [solve(problem, rule).iteration_s for rule in pipeline_rule_names()]
        assert ours <= min(rules) * (1 + 1e-9)
        ratios.append(ours / min(rules))
    assert math.prod(ratios) < 0.97 ** len(ratios)
