"""How close rehearsals of pipeline plans come to the simulator, and in which order three plans end.

    python benchmarks/pipeline_fidelity.py --scenario FILE:D2 --profiles DATA/pipelines/sailor

Plans a scenario, takes the same pipelines with equal numbers of rows per stage, and the best
uniform grid, and rehearses all three: every rank is a process that runs the table of its plan with
real messages, groups and sums on small tensors, and sleeps for what its device type would compute,
send, exchange and update. Emulated: the times say what the runtime adds to the work, and nothing
about how fast a GPU is.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from generated import run

from arachne_opt.executor.pipeline.job import PipelineJob
from arachne_opt.executor.pipeline.launch import run_local
from arachne_opt.importers.pipeline_scenarios import read_scenario
from arachne_opt.importers.scenario_problems import scenario_problem
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.simulate import simulate
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.solvers.base import Limits

# Planned times closer than this are the same.
_EQUAL = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One plan, planned and rehearsed, in seconds of the plan."""

    name: str
    ranks: int
    planned_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Measured over planned."""
        return self.measured_s / self.planned_s


def main() -> None:
    """Plans, rehearses and prints a row per plan."""
    options = _options()
    print(f"emulated; {os.cpu_count()} cores, {platform.machine()}, seed {options.seed},", end=" ")
    print(
        f"plans of {options.time_limit:g} s, {options.seconds:g} s an iteration of ours,", end=" "
    )
    print(f"median of {options.repeats}")
    print("plan           ranks  micro-batches    planned   measured   ratio")
    scenario = read_scenario(options.scenario)
    problem = scenario_problem(scenario, options.profiles, allow_estimates=True)
    plans = dict(three_plans(problem, options))
    speed = _planned_s(problem, plans["ours"]) / options.seconds
    rows = []
    for name, plan in plans.items():
        row = rehearse(name, problem, plan, speed, options.repeats)
        counts = "-".join(map(str, sorted({min(plan.counts), max(plan.counts)})))
        times = f"{row.planned_s:>9.3f} s{row.measured_s:>9.3f} s{row.ratio:>8.4f}"
        print(f"{row.name:<14}{row.ranks:>6}{counts:>15}{times}", flush=True)
        rows.append(row)
    planned = sorted(rows, key=lambda row: row.planned_s)
    measured = sorted(rows, key=lambda row: row.measured_s)
    # Plans of equal times, such as ours where even layers are best, may end in any order.
    alike = all(b.planned_s > (1 - _EQUAL) * a.planned_s for a, b in pairwise(measured))
    verdict = "as predicted" if alike else f"predicted {' < '.join(row.name for row in planned)}"
    print(f"order: {' < '.join(row.name for row in measured)}, {verdict}")


def three_plans(
    problem: PipelineProblem, options: argparse.Namespace
) -> Iterator[tuple[str, PipelinePlan]]:
    """Ours, ours with even layers, and the best uniform grid, by name."""
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed, workers=2)
    service = PipelineService(None)
    ours = service.plan(problem, limits).plan
    uniform = service.plan(problem, limits, solver="uniform").plan
    for name, plan in (("ours", ours), ("even layers", even(problem, ours)), ("uniform", uniform)):
        yield name, place(problem, fewer(plan, options.share))


def even(problem: PipelineProblem, plan: PipelinePlan) -> PipelinePlan:
    """The plan with rows spread evenly over the stages; says so where that is not legal."""
    pipelines = []
    for pipeline in plan.pipelines:
        count, rows = len(pipeline.stages), problem.model.row_count
        cuts = [rows * i // count for i in range(count + 1)]
        stages = tuple(
            replace(stage, first=cuts[i], end=cuts[i + 1])
            for i, stage in enumerate(pipeline.stages)
        )
        pipelines.append(replace(pipeline, stages=stages))
    spread = replace(plan, pipelines=tuple(pipelines))
    for violation in check_plan(problem, spread):
        print(f"even layers: {violation}")
    return spread


def fewer(plan: PipelinePlan, share: int) -> PipelinePlan:
    """The plan with that part of its micro-batches; nothing else changes."""
    pipelines = tuple(
        replace(pipeline, microbatches=max(1, count // share))
        for pipeline, count in zip(plan.pipelines, plan.counts, strict=True)
    )
    return replace(plan, pipelines=pipelines)


def rehearse(
    name: str, problem: PipelineProblem, plan: PipelinePlan, speed: float, repeats: int
) -> Row:
    """The median of some iterations, without a first one that opens connections."""
    job = PipelineJob(
        problem=problem, plan=plan, steps=1 + repeats, speed=speed, threads_per_rank=1
    )
    steps = run_local(job).steps[1:]
    return Row(
        name=name,
        ranks=job.world_size,
        planned_s=_planned_s(problem, plan),
        measured_s=speed * statistics.median(step.measured_us for step in steps) / 1e6,
    )


def _planned_s(problem: PipelineProblem, plan: PipelinePlan) -> float:
    return simulate(problem, plan).iteration_s


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenario", required=True, metavar="FILE:ID")
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=6.0, help="of an iteration of our plan")
    parser.add_argument("--share", type=int, default=1, help="play one in so many micro-batches")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=8.0, help="seconds per plan")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
