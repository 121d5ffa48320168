"""What a plan is worth when real models train: planned, bucketed and uniform, measured in one run.

    python benchmarks/real_speed.py

Two ranks of one thread each train a small Wan on clips of mixed shape. Tasks are measured first;
from these costs come our plans, bucketed data parallelism (the smallest degree that holds every
micro-batch, here 1) and uniform sequence parallelism (all ranks for every task). Then the three
run in turn, iteration by iteration, so that a slow moment of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from generated import run

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.cli.profile import distinct_shapes
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.table import TableCostModel
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.launch import run_local
from arachne_opt.executor.measure import MeasureJob, measure_local
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.grouping import group_clips
from arachne_opt.models import model_spec
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.baselines.deal import finish
from arachne_opt.solvers.baselines.uniform import bucketed_data_parallel, uniform_runs
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.workload import Workload
from arachne_opt.workload_generator import generate_clips

METHODS = ("planned", "bucketed", "uniform")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one iteration under each method, planned and as measured (median)."""

    name: str
    planned_s: tuple[float, ...]
    measured_s: tuple[float, ...]


def main() -> None:
    """Measures, plans, trains and prints a row per iteration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo-wan")
    parser.add_argument("--clips", type=int, default=32)
    parser.add_argument("--iteration-size", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="after one that warms up")
    parser.add_argument("--repeats", type=int, default=3, help="of each measured task")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, {options.ranks} ranks of 1 thread,", end=" "
    )
    print(f"{options.model}, {options.clips} clips, seed {options.seed},", end=" ")
    print(f"median of {options.rounds}")
    show(compare(options))


def compare(options: argparse.Namespace) -> tuple[Times, ...]:
    """Plans and trains every iteration of a generated workload under each method."""
    work = workload(options)
    job = MeasureJob(
        model=ModelChoice(preset=options.model),
        batches=distinct_shapes(work),
        degrees=tuple(range(1, options.ranks + 1)),
        repeats=options.repeats,
        threads_per_rank=1,
    )
    rows = measure_local(job, options.ranks)
    costs = TableCostModel.from_measurements(model_spec(options.model), rows)
    cluster = read_cluster(f"CPU:{options.ranks}")
    problems = [build_problem(iteration, cluster, costs) for iteration in work.iterations]
    plans = [plans_of(problem, options.seed) for problem in problems]
    return train(work, problems, plans, options)


def workload(options: argparse.Namespace) -> Workload:
    """Clips of mixed shape in iterations."""
    grouped = group_clips(
        generate_clips("demo", count=options.clips, seed=options.seed),
        buckets=None,
        model=model_spec(options.model),
        iteration_size=options.iteration_size,
        batch=1,
        max_tokens=None,
        seed=options.seed,
        name="mixed",
    )
    return grouped.workload


def plans_of(problem: CascadeProblem, seed: int) -> tuple[CascadePlan, ...]:
    """A plan by each method, all of them checked."""
    limits = Limits(time_limit_s=3.0, seed=seed)
    results = (
        solve_cascade(problem, limits),
        bucketed_data_parallel(problem, limits),
        uniform(problem, limits),
    )
    found = []
    for result in results:
        assert result.plan is not None  # every degree is measured
        assert result.objective_us is not None
        verify(problem, result.plan, result.objective_us)
        found.append(result.plan)
    return tuple(found)


def uniform(problem: CascadeProblem, limits: Limits) -> Result:
    """Every task on all devices, one after the other."""
    digest = Digest(problem)
    runs = uniform_runs(digest, digest.device_count)
    return finish(digest, runs, limits, "uniform", time.perf_counter())


def train(
    work: Workload,
    problems: Sequence[CascadeProblem],
    plans: Sequence[tuple[CascadePlan, ...]],
    options: argparse.Namespace,
) -> tuple[Times, ...]:
    """Trains each iteration under each method in turn; the first round warms up."""
    turns = tuple(
        ReplayIteration(
            batches=replace(iteration, name=f"{iteration.name} {method}"),
            problem=problem,
            plan=plan,
        )
        for iteration, problem, row in zip(work.iterations, problems, plans, strict=True)
        for method, plan in zip(METHODS, row, strict=True)
    )
    job = ReplayJob(
        model=ModelChoice(preset=options.model),
        iterations=turns,
        epochs=1 + options.rounds,
        learning_rate=0.0,
        threads_per_rank=1,
    )
    report = run_local(job, options.ranks)
    measured: list[list[int]] = [[] for _ in turns]
    for step in report.iterations[len(turns) :]:
        measured[step.step % len(turns)].append(step.measured_us)
    medians = [statistics.median(times) / 1e6 for times in measured]
    planned = [turn.plan.makespan_us / 1e6 for turn in turns]
    count = len(METHODS)
    return tuple(
        Times(
            name=iteration.name,
            planned_s=tuple(planned[count * i : count * (i + 1)]),
            measured_s=tuple(medians[count * i : count * (i + 1)]),
        )
        for i, iteration in enumerate(work.iterations)
    )


def total(rows: Sequence[Times]) -> Times:
    """The sums over all iterations."""
    return Times(
        name="all",
        planned_s=tuple(map(sum, zip(*(row.planned_s for row in rows), strict=True))),
        measured_s=tuple(map(sum, zip(*(row.measured_s for row in rows), strict=True))),
    )


def order(times: Sequence[float]) -> tuple[str, ...]:
    """The methods, the quickest first."""
    return tuple(METHODS[i] for i in sorted(range(len(times)), key=times.__getitem__))


def show(rows: Sequence[Times]) -> None:
    """Prints planned and measured times, how much quicker ours is, and both orders."""
    head = "".join(f"{method + ': plan':>16}{'measured':>10}" for method in METHODS)
    print(f"{'iteration':<12}{head}   quicker than the better")
    for row in (*rows, total(rows)):
        pairs = zip(row.planned_s, row.measured_s, strict=True)
        cells = "".join(f"{planned:>14.3f} s{measured:>8.3f} s" for planned, measured in pairs)
        ours, *others = row.measured_s
        print(f"{row.name:<12}{cells}{min(others) / ours:>10.2f} x")
    whole = total(rows)
    print(f"order planned:  {' < '.join(order(whole.planned_s))}")
    print(f"order measured: {' < '.join(order(whole.measured_s))}")


if __name__ == "__main__":
    run(main)
