"""Whether training ever waits for its plans when they are made ahead of it.

    python benchmarks/plan_ahead.py --log workload_hunyuan_720p_129.json

Trains nothing: an iteration is a sleep. ``--speed 10`` runs ten times as fast, with time limits
that are as much shorter; the background process then has less time for its own start as well.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from generated import run

from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.importers.workloads import read_workload_log
from arachne_opt.models import model_spec
from arachne_opt.planning.plan_ahead import PlanAhead, ReadyPlan, Source
from arachne_opt.solvers.base import Limits
from arachne_opt.units import format_seconds


def main() -> None:
    """Runs the iterations and prints what each waited for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True, help="workload log, see importers")
    parser.add_argument("--cluster", default="H100-80:8x4")
    parser.add_argument("--model", default="hunyuanvideo-13b")
    parser.add_argument("--iteration-s", type=float, default=30.0, help="of training")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds per plan")
    parser.add_argument("--first-s", type=float, default=10.0, help="wait for the first plan")
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    cluster = read_cluster(options.cluster)
    costs = analytic_for_cluster(model_spec(options.model), cluster)
    workload = read_workload_log(options.log)
    problems = [build_problem(it, cluster, costs) for it in workload.iterations] * options.epochs
    limits = Limits(time_limit_s=options.time_limit / options.speed, workers=options.workers)
    print(f"{workload.name}, {options.model} on {options.cluster}, {os.cpu_count()} cores,", end="")
    print(f" {options.iteration_s:g} s an iteration at speed {options.speed:g}")
    print("iteration  source    makespan    gap   get took  waited for the process")
    ready = []
    with PlanAhead(problems, limits) as ahead:
        for number in range(len(problems)):
            deadline_s = options.first_s / options.speed if number == 0 else 0.0
            ready.append(ahead.get(number, deadline_s=deadline_s))
            _print(ready[-1])
            time.sleep(options.iteration_s / options.speed)
    _print_sums(ready)


def _print(ready: ReadyPlan) -> None:
    gap = "" if ready.gap is None else f"{100 * ready.gap:.1f} %"
    source = "repeated" if ready.repeated else ready.source.value
    took = f"{1000 * ready.waited_s:.1f} ms"
    print(
        f"{ready.number:9}  {source:8}  {format_seconds(ready.objective_us):>8}  {gap:>6} "
        f"{took:>10}  {ready.blocked_s:.3f} s",
        flush=True,
    )


def _print_sums(ready: list[ReadyPlan]) -> None:
    later = ready[1:]
    waited = sum(r.blocked_s > 0 for r in later)
    longest_ms = 1000 * max((r.waited_s for r in later), default=0.0)
    hits = sum(r.repeated or r.source is Source.KEPT for r in ready)
    gaps = [r.gap for r in later if r.gap is not None]
    print(f"waits after the first iteration: {waited}; longest get {longest_ms:.1f} ms")
    print(f"cache hits: {hits} of {len(ready)}")
    lists = sum(r.source is Source.LIST for r in later)
    print(f"list-scheduled at need: {lists}; mean gap at use {100 * sum(gaps) / len(gaps):.1f} %")


if __name__ == "__main__":
    run(main)
