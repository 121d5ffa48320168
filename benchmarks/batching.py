"""Micro-batches chosen with their placement against bucketed ones, at the same time limit.

    python benchmarks/batching.py --time-limit 10

Prints a row per generated iteration. "bucketed" solves the iteration as the bucket table groups
it; "chosen" gets the same clips, the same costs, the same solver and the same time for batching
and placing together, and starts from nothing that the bucketed solve found.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from generated import run

from arachne_opt.cascade.verify import verify
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.batching import build_batching_problem
from arachne_opt.costs.build import build_problem
from arachne_opt.models import model_spec
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.batching import solve_batching
from arachne_opt.solvers.registry import cascade_solver
from arachne_opt.units import format_seconds
from arachne_opt.workload import Iteration
from arachne_opt.workload_generator import generate_workload

PRESETS = {"mixed": 10, "720p": 10, "360p": 5, "1080p": 5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Both groupings of one iteration."""

    preset: str
    name: str
    clips: int
    buckets: int
    bucketed_us: int
    chosen: int
    chosen_us: int
    bound_us: int

    @property
    def ratio(self) -> float:
        """Chosen over bucketed makespan."""
        return self.chosen_us / self.bucketed_us


def main() -> None:
    """Runs the comparison and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="H100-80:8x4")
    parser.add_argument("--model", default="hunyuanvideo-13b")
    parser.add_argument("--cascades", type=int, default=16, help="bucketed micro-batches")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds per solve")
    parser.add_argument("--iterations", type=int, help="of each preset; 10, 10, 5, 5 by default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cluster = read_cluster(options.cluster)
    costs = analytic_for_cluster(model_spec(options.model), cluster)
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed, workers=options.workers)
    print(f"{options.model} on {options.cluster}, {options.cascades} micro-batches by bucket,")
    print(f"{limits.time_limit_s:g} s, {limits.workers} workers, {os.cpu_count()} cores,", end=" ")
    print(f"seed {limits.seed}")
    print(f"{'iteration':14} clips  buckets   makespan  chosen   makespan  ratio  gap of all")
    rows = []
    for preset, count in PRESETS.items():
        for iteration in _iterations(preset, options.iterations or count, options):
            row = compare(preset, iteration, cluster, costs, limits)
            rows.append(row)
            _print(row)
    wins = sum(row.chosen_us < row.bucketed_us for row in rows)
    mean = math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))
    print(f"chosen is strictly better on {wins} of {len(rows)}; geometric mean {mean:.3f}")


def compare(
    preset: str, iteration: Iteration, cluster: Cluster, costs: CostModel, limits: Limits
) -> Row:
    """Solves an iteration in both groupings and checks both plans."""
    problem = build_problem(iteration, cluster, costs)
    bucketed = cascade_solver().solve(problem, limits)
    assert bucketed.plan is not None
    assert bucketed.objective_us is not None
    verify(problem, bucketed.plan, bucketed.objective_us)
    batching = build_batching_problem(iteration, cluster, costs)
    found = solve_batching(batching, limits, start=batching.batching_of(iteration))
    assert found.result.plan is not None
    assert found.result.objective_us is not None
    verify(found.problem, found.result.plan, found.result.objective_us)
    batching.iteration(found.batching)  # every clip exactly once, or it raises
    return Row(
        preset=preset,
        name=iteration.name,
        clips=batching.clip_count,
        buckets=len(problem.cascades),
        bucketed_us=bucketed.objective_us,
        chosen=len(found.problem.cascades),
        chosen_us=found.result.objective_us,
        bound_us=found.bound_us,
    )


def _iterations(preset: str, count: int, options: argparse.Namespace) -> Iterator[Iteration]:
    workload = generate_workload(
        preset, iterations=count, cascades=options.cascades, seed=options.seed
    )
    yield from workload.iterations


def _print(row: Row) -> None:
    gap = row.chosen_us / row.bound_us - 1
    print(
        f"{row.preset + ' ' + row.name:14} {row.clips:5}  {row.buckets:7} "
        f"{format_seconds(row.bucketed_us):>10}  {row.chosen:6} "
        f"{format_seconds(row.chosen_us):>10}  {row.ratio:5.3f}  {100 * gap:8.1f} %",
        flush=True,
    )


if __name__ == "__main__":
    run(main)
