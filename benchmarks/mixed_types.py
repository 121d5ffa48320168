"""Two device types in one cluster: 16 H100 and 16 A100 that are 2.2 times as slow.

    python benchmarks/mixed_types.py --time-limit 10

Our plan against the best plan for the devices of one type alone, and against the plan of a solver
that believes all devices to be fast. A group of that plan may mix types; it is then as slow as its
slowest device, which spares it the cost of being illegal.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence

from generated import checked, conditions, generated_problems, problem_options, run

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem, Option, Task
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.solvers.base import Limits
from arachne_opt.units import PPM, format_seconds, scale_up

FAST, SLOW = "H100-80", "A100-80"


def main() -> None:
    """Solves every iteration four ways and prints a row for each."""
    options = _options()
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed, workers=options.workers)
    print(conditions(options))
    print(f"16 {FAST} and 16 {SLOW}, {options.slower:g} times as slow; {limits.time_limit_s:g} s")
    print("iteration           both     gap  fast only  slow only  types ignored")
    wins = count = 0
    for mixture in options.mixtures:
        for fast in generated_problems(mixture, 32, options.iterations, options):
            both, rivals = compare(fast, options.slower, limits)
            wins, count = wins + (both[0] < min(rivals)), count + 1
            cells = "".join(f"{format_seconds(us):>11}" for us in rivals)
            gap = 100 * (both[0] / both[1] - 1)
            print(f"{fast.name:15} {format_seconds(both[0]):>9} {gap:5.1f} %{cells}", flush=True)
    print(f"shorter than each of the three on {wins} of {count}")


def compare(
    fast: CascadeProblem, slower: float, limits: Limits
) -> tuple[tuple[int, int], tuple[int, ...]]:
    """(makespan, bound) on both types, and makespans of fast only, slow only, types ignored.

    Args:
        fast: the iteration on 32 fast devices.
        slower: time on a slow device over that on a fast one.
        limits: of every solve.
    """
    factors_ppm = {FAST: PPM, SLOW: round(PPM * slower)}
    cluster = read_cluster(f"{FAST}:8x2, {SLOW}:8x2")
    result = checked(_on(fast, cluster, factors_ppm), "portfolio", limits)
    assert result.objective_us is not None
    alone = [
        _makespan_us(_on(fast, read_cluster(f"{kind}:8x2"), {kind: ppm}), limits)
        for kind, ppm in factors_ppm.items()
    ]
    ignored = checked(fast, "portfolio", limits).plan
    assert ignored is not None
    figures = (*alone, charged_by_slowest_us(fast, ignored, cluster, factors_ppm))
    return (result.objective_us, result.bound_us), figures


def charged_by_slowest_us(
    fast: CascadeProblem, plan: CascadePlan, cluster: Cluster, factors_ppm: Mapping[str, int]
) -> int:
    """Makespan of a plan for fast devices on a cluster, a group as slow as its slowest device."""
    free = [0] * cluster.device_count
    ends: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
    for p in plan.placements:
        task = fast.cascades[p.cascade].tasks[p.task]
        option = task.option(p.degree, FAST)
        assert option is not None
        slowest = max(factors_ppm[cluster.devices[d].device_type.name] for d in p.devices)
        duration_us = scale_up(option.duration_us, slowest)
        start = max(free[d] for d in p.devices)
        for before in task.predecessors:
            end, producer = ends[p.cascade, before]
            start = max(start, end + cluster.handoff_us(task.input_bytes, producer, p.devices))
        end = start + scale_up(duration_us, cluster.penalty_ppm(p.devices))
        ends[p.cascade, p.task] = end, p.devices
        for d in p.devices:
            free[d] = end
    return max(free)


def _on(
    problem: CascadeProblem, cluster: Cluster, factors_ppm: Mapping[str, int]
) -> CascadeProblem:
    """The same cascades on another cluster, with a time factor for each of its device types."""

    def options(task: Task) -> Sequence[Option]:
        return [
            dataclasses.replace(o, duration_us=scale_up(o.duration_us, ppm), device_type=kind)
            for o in task.options
            for kind, ppm in factors_ppm.items()
            if o.degree <= cluster.count_of_type[kind]
        ]

    cascades = tuple(
        dataclasses.replace(
            cascade,
            tasks=tuple(
                dataclasses.replace(task, options=tuple(options(task))) for task in cascade.tasks
            ),
        )
        for cascade in problem.cascades
    )
    return dataclasses.replace(problem, cluster=cluster, cascades=cascades)


def _makespan_us(problem: CascadeProblem, limits: Limits) -> int:
    makespan_us = checked(problem, "portfolio", limits).objective_us
    assert makespan_us is not None
    return makespan_us


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    problem_options(parser)
    parser.add_argument("--mixtures", nargs="+", default=("720p", "mixed"))
    parser.add_argument("--iterations", type=int, default=3, help="of each mixture")
    parser.add_argument("--slower", type=float, default=2.2, help="slow over fast durations")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds a solve")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
