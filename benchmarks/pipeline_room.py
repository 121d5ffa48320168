"""How far below known plans other plans can be: proofs, scenario by scenario.

    python benchmarks/pipeline_room.py --scenarios FILE --profiles DATA/pipelines/sailor --only D4

For each scenario our plan is searched, and then every batch is looked at for which a pipeline may
take less than ``--below`` times its time. The proof is over all pipelines of any number of stages,
in any order, with any rows, replicas, degrees and micro-batches, whose stages have one device type
each; with ``--mixed`` stages may have any replicas of any types and degrees. With ``--least`` it is
over plans of so many pipelines or more. Where the best known plan is the better one, it is what the
time is a part of.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

from generated import run

from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InputError
from arachne_opt.importers.pipeline_scenarios import Scenario, read_scenarios
from arachne_opt.importers.scenario_problems import scenario_problem
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.registry import pipeline_solver
from arachne_opt.solvers.pipeline.restrictions import Restrictions
from arachne_opt.solvers.pipeline.several_bound import open_cases
from arachne_opt.solvers.pipeline.single_bound import open_batches
from arachne_opt.solvers.pipeline.stage_facts import OptionStages, Stages
from arachne_opt.solvers.pipeline.stage_mixes import StageMixes
from arachne_opt.solvers.pipeline.workbench import Workbench

_SEARCH_S = 20


def main() -> None:
    """Prints a row for each scenario."""
    options = _options()
    _check(options)
    print(f"below {options.below:g} of the best, {os.cpu_count()} cores")
    what = "open cases" if options.least else "batches open of all"
    print(f"scenario, best known s, ours s, asked s, {what}, seconds")
    for scenario in _chosen(options):
        row = _row(scenario, options)
        print(", ".join(str(cell) for cell in row), flush=True)


def _check(options: argparse.Namespace) -> None:
    """Refuses numbers of which nothing can be proven."""
    if options.least is not None and options.least < 1:
        raise InputError(
            f"{options.least} pipelines make no plan", where="--least", hint="1 or more"
        )
    for name, value in (("--below", options.below), ("--time-limit", options.time_limit)):
        if not 0 < value < math.inf:
            raise InputError(f"{value:g} is no such number", where=name, hint="more than 0")


def _row(scenario: Scenario, options: argparse.Namespace) -> tuple[object, ...]:
    problem = scenario_problem(
        scenario, options.profiles, options=PipelineOptions(allow_excess=True)
    )
    bench = Workbench(problem, TableCosts(problem), Restrictions(pure_stages=True))
    stages = StageMixes(bench) if options.mixed else OptionStages(bench)
    ours, known = _ours_s(problem), scenario.best_known_s
    asked = options.below * (known if options.known and known else min(ours, known or ours))
    begin = time.monotonic()

    def over() -> bool:
        return time.monotonic() - begin > options.time_limit

    if options.least:
        shown = _cases(bench, stages, asked, over, options.least)
    else:
        shown = _batches(bench, stages, asked, over)
    return (
        scenario.name,
        known,
        f"{ours:.3f}",
        f"{asked:.3f}",
        shown,
        f"{time.monotonic() - begin:.0f}",
    )


def _batches(bench: Workbench, stages: Stages, asked_s: float, over: Callable[[], bool]) -> str:
    """Batches for which a plan of one pipeline may take less time."""
    left = list(open_batches(bench, stages, asked_s, over))
    every = len(stages.batches)
    return f"{len(left)} of {every}" + (f" ({', '.join(map(str, left[:8]))})" if left else "")


def _cases(
    bench: Workbench, stages: Stages, asked_s: float, over: Callable[[], bool], least: int
) -> str:
    """Cases in which a plan of so many pipelines or more may take less time."""
    left = list(open_cases(bench, stages, asked_s, over, least=least))
    counts = ", ".join(dict.fromkeys(f"{c.least} to {c.most}" for c in left))
    return f"{len(left)}" + (f" (pipelines: {counts})" if left else "")


def _ours_s(problem: PipelineProblem) -> float:
    result = pipeline_solver().solve(problem, TableCosts(problem), Limits(time_limit_s=_SEARCH_S))
    if result.iteration_s is None:
        raise InputError("no plan to be compared with was found", where=f"scenario {problem.name}")
    return result.iteration_s


def _chosen(options: argparse.Namespace) -> list[Scenario]:
    every = read_scenarios(options.scenarios)
    chosen = [s for s in every if any(fnmatchcase(s.name, only) for only in options.only)]
    if not chosen:
        names = ", ".join(s.name for s in every)
        raise InputError("no such scenario", where=str(options.scenarios), hint=names)
    return chosen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenarios", type=Path, required=True)
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--only", action="append", required=True, help="may have wildcards")
    parser.add_argument("--below", type=float, default=0.99, help="part of the best time")
    parser.add_argument("--known", action="store_true", help="a part of the best known time")
    parser.add_argument("--least", type=int, help="plans of so many pipelines or more, from 1 on")
    parser.add_argument("--mixed", action="store_true", help="stages of any types, too")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for a proof")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
