"""How close a replay comes to its plan when the work is only slept through.

    python benchmarks/emulated_fidelity.py --instances instances_n4_32gpu.json --seconds 6

Plans the instances, scales each plan to ``--seconds`` per iteration and rehearses it: every rank
is a process with real groups, collectives and hand-offs on small tensors. Emulated: the times say
what the runtime adds to the work, and nothing about how fast a GPU is.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
from pathlib import Path

from generated import run

from arachne_opt.executor.emulation import emulated_job, task_overheads
from arachne_opt.executor.launch import run_local
from arachne_opt.executor.report import IterationReport
from arachne_opt.importers.instances import PublishedInstance, read_instances
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.portfolio import solve_cascade


def main() -> None:
    """Plans, rehearses and prints a row per instance."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=Path, required=True)
    parser.add_argument("--only", action="append", help="names of instances, with * and ?")
    parser.add_argument("--seconds", type=float, default=6.0, help="of an iteration")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--time-limit", type=float, default=2.0, help="seconds per plan")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    instances = read_instances(options.instances, allow_estimates=True, only=options.only)
    print(f"emulated; {os.cpu_count()} cores, {platform.machine()}, seed {options.seed},", end=" ")
    print(f"plans of {options.time_limit:g} s, median of {options.repeats}")
    head = "instance        ranks  tasks   planned  measured   ratio"
    print(f"{head}  overhead of a task (median, 95 %)")
    for instance in instances:
        rows = rehearse(instance, options)
        show(instance, rows)


def rehearse(
    instance: PublishedInstance, options: argparse.Namespace
) -> tuple[IterationReport, ...]:
    """The measured iterations of one instance, without a first one that opens connections."""
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed)
    plan = solve_cascade(instance.problem, limits).plan
    assert plan is not None  # the instances are known to be feasible
    job = emulated_job(
        "hunyuanvideo-13b",
        [instance.problem],
        [plan],
        speed=plan.makespan_us / 1e6 / options.seconds,
        epochs=1 + options.repeats,
    )
    return run_local(job, job.world_size).iterations[1:]


def show(instance: PublishedInstance, rows: tuple[IterationReport, ...]) -> None:
    """Prints the medians of one instance."""
    planned_s = rows[0].planned_us / 1e6
    measured_s = statistics.median(row.measured_us for row in rows) / 1e6
    overheads = sorted(us for row in rows for us in task_overheads(row))
    middle = statistics.median(overheads) / 1e3
    high = overheads[int(0.95 * (len(overheads) - 1))] / 1e3
    ranks = instance.problem.cluster.device_count
    print(
        f"{instance.id:<16}{ranks:>5}{len(rows[0].tasks):>7}{planned_s:>8.3f} s{measured_s:>8.3f} s"
        f"{measured_s / planned_s:>8.4f}{middle:>12.2f} ms{high:>8.2f} ms",
        flush=True,
    )


if __name__ == "__main__":
    run(main)
