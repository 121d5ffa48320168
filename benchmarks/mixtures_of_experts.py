"""What spreading experts is worth: mixtures of experts against dense treatment of the same model.

    python benchmarks/mixtures_of_experts.py --scenarios SCENARIOS --profiles DATA/pipelines/sailor

Each scenario is planned by the same search under three rules: experts spread over any number of
replicas, inside nodes or across them (ours); no experts spread, so that every replica holds all of
them (dense); experts spread over all replicas of a node (node). The best of five peer-like rules,
none of which spreads experts, stands beside them. Plans may train a few samples more than the
global batch. The last column says what no plan can pass: the dense time over the work bound, in
which every device works at its best rate and nothing is ever sent. All assumptions are printed.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import generated
from processor_time import count_processor_time

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.importers.pipeline_scenarios import Scenario, read_scenario
from arachne_opt.importers.scenario_problems import scenario_problem
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.pipeline.verify import verify
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.pipeline.base import PipelineResult
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.pipeline.registry import pipeline_rule_names, pipeline_solver
from arachne_opt.solvers.pipeline.restrictions import Restrictions, Spread
from arachne_opt.solvers.seeds.policy_file import TEMPLATES
from arachne_opt.solvers.seeds.shipped import SHIPPED, resolved

SCENARIOS = ("M1", "M2", "M3")
MEMORY = {"plain": (False, False), "recomputation + ZeRO-1": (True, True)}
_HEAD = "scenario imbalance memory                  ours s   dense s    node s   best rule s"

TREATMENTS = {"ours": Spread.ANY, "dense": Spread.NONE, "node": Spread.NODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Iteration times in seconds, None where no plan was found.

    Args:
        impossible: treatments for which a plan is proven not to exist.
        bound_s: work bound with any spread of the experts.
    """

    scenario: str
    imbalance: float
    memory: str
    ours_s: float | None
    dense_s: float | None
    node_s: float | None
    rules_s: dict[str, float | None]
    impossible: tuple[str, ...]
    bound_s: float
    devices: str

    @property
    def best_rule_s(self) -> float | None:
        """The least time of the rules."""
        return min((s for s in self.rules_s.values() if s is not None), default=None)


def main() -> None:
    """Plans every scenario and prints the table and the assumptions."""
    options = _options()
    if options.processor_time:
        count_processor_time()
    print(f"{options.time_limit:g} s a plan, seed {options.seed}, {os.cpu_count()} cores")
    print(f"{_HEAD}  dense/ours node/ours rule/ours  dense/bound  devices of ours")
    for name in options.only:
        scenario = read_scenario(f"{options.scenarios}:{name}")
        notes: dict[str, None] = {}
        for (memory, choice), imbalance in product(MEMORY.items(), imbalances(scenario)):
            chosen = PipelineOptions(allow_excess=True, recomputation=choice[0], zero1=choice[1])
            problem = scenario_problem(
                scenario, options.profiles, options=chosen, imbalance=imbalance
            )
            show(run(problem, name, imbalance, memory, options))
            notes |= dict.fromkeys(problem.notes)
        for note in notes:
            print(f"  {name}: {note}")


def imbalances(scenario: Scenario) -> tuple[float, ...]:
    """Those that the scenario names."""
    return scenario.sparse.imbalances if scenario.sparse is not None else ()


def run(
    problem: PipelineProblem,
    name: str,
    imbalance: float,
    memory: str,
    options: argparse.Namespace,
) -> Row:
    """Plans one problem under all rules."""
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed)
    policy = resolved(SHIPPED, TEMPLATES)
    found = {
        treatment: solve_pipeline(
            problem,
            TableCosts(problem),
            limits,
            restrictions=Restrictions(spread=spread),
            policy=policy,
        )
        for treatment, spread in TREATMENTS.items()
    }
    times = {treatment: _verified_s(problem, result) for treatment, result in found.items()}
    plan = found["ours"].plan
    return Row(
        scenario=name,
        imbalance=imbalance,
        memory=memory,
        ours_s=times["ours"],
        dense_s=times["dense"],
        node_s=times["node"],
        rules_s={rule: _rule_s(problem, rule, limits) for rule in pipeline_rule_names()},
        impossible=tuple(t for t, r in found.items() if r.status is Status.INFEASIBLE),
        bound_s=found["ours"].bound_s,
        devices=", ".join(f"{k} {n}" for k, n in plan.devices_used().items()) if plan else "",
    )


def _rule_s(problem: PipelineProblem, rule: str, limits: Limits) -> float | None:
    result = pipeline_solver(rule).solve(problem, TableCosts(problem), limits)
    return _verified_s(problem, result)


def _verified_s(problem: PipelineProblem, result: PipelineResult) -> float | None:
    if result.plan is None or result.iteration_s is None:
        return None
    verify(problem, result.plan, result.iteration_s)
    return result.iteration_s


def show(row: Row) -> None:
    """Prints a row."""
    ours_s, dense_s = row.ours_s, row.dense_s
    times = " ".join(
        _cell(seconds, row, name)
        for seconds, name in [(ours_s, "ours"), (dense_s, "dense"), (row.node_s, "node")]
    )
    ratios = " ".join(
        f"{theirs / ours_s:10.3f}" if theirs and ours_s else f"{'–':>10}"
        for theirs in (dense_s, row.node_s, row.best_rule_s)
    )
    most = f"{dense_s / row.bound_s:11.3f}" if dense_s else f"{'–':>11}"
    print(
        f"{row.scenario:8} {row.imbalance:9g} {row.memory:22} {times} "
        f"{_cell(row.best_rule_s, row, ''):>13} {ratios} {most}  {row.devices}",
        flush=True,
    )


def _cell(seconds: float | None, row: Row, treatment: str) -> str:
    if seconds is not None:
        return f"{seconds:9.3f}"
    return f"{'none can be' if treatment in row.impossible else 'none found':>9}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", type=Path, required=True, help="file of scenarios")
    parser.add_argument("--profiles", type=Path, required=True, help="folder of profiles")
    parser.add_argument("--only", nargs="+", default=SCENARIOS)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds a plan")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processor-time", action="store_true", help="limits in processor seconds")
    return parser.parse_args()


if __name__ == "__main__":
    generated.run(main)
