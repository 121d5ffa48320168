"""Two device types in one cluster: 16 H100 and 16 A100 that are 2.2 times as slow.

    python benchmarks/mixed_types.py --time-limit 10

Our plan against the best plan for the devices of one type alone, and against the plan of a solver
that believes all devices to be fast. A group of that plan may mix types; it is then as slow as its
slowest device, which spares it the cost of being illegal.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from generated import (
    checked,
    conditions,
    costs_for,
    generated_iterations,
    limits_of,
    problem_options,
    run,
)

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem, Option
from arachne_opt.cluster import Cluster, DeviceType
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.build import build_problem
from arachne_opt.solvers.base import Limits
from arachne_opt.units import PPM, format_seconds, scale_up
from arachne_opt.workload import Iteration, MicroBatch

FAST, SLOW = "H100-80", "A100-80"


class SlowerCosts:
    """Costs of fast devices for all types, times a factor for each.

    Args:
        costs: prices tasks on ``kind``.
        kind: the fast type.
        factors_ppm: by name of the type, in millionths.
    """

    def __init__(self, costs: CostModel, kind: DeviceType, factors_ppm: Mapping[str, int]) -> None:
        self._costs = costs
        self._kind = kind
        self._factors_ppm = factors_ppm

    def options(self, task: str, batch: MicroBatch, device_type: DeviceType) -> tuple[Option, ...]:
        """Options of the fast type, slower by the factor of the type."""
        ppm = self._factors_ppm[device_type.name]
        return tuple(
            dataclasses.replace(option, duration_us=scale_up(option.duration_us, ppm))
            for option in self._costs.options(task, batch, self._kind)
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._costs, name)  # all but the durations is that of the fast type


def main() -> None:
    """Solves every iteration four ways and prints a row for each."""
    options = _options()
    limits = limits_of(options)
    print(conditions(options))
    print(f"16 {FAST} and 16 {SLOW}, {options.slower:g} times as slow; {limits.time_limit_s:g} s")
    print("iteration           both     gap  fast only  slow only  types ignored")
    wins = count = 0
    for mixture in options.mixtures:
        for iteration in generated_iterations(mixture, 32, options.iterations, options):
            both, rivals = compare(iteration, options, limits)
            wins, count = wins + (both[0] < min(rivals)), count + 1
            cells = "".join(f"{format_seconds(us):>11}" for us in rivals)
            gap = 100 * (both[0] / both[1] - 1)
            name = f"{mixture} {iteration.name}"
            print(f"{name:15} {format_seconds(both[0]):>9} {gap:5.1f} %{cells}", flush=True)
    print(f"shorter than each of the three on {wins} of {count}")


def compare(
    iteration: Iteration, options: argparse.Namespace, limits: Limits
) -> tuple[tuple[int, int], tuple[int, ...]]:
    """(makespan, bound) on both types, and makespans of fast only, slow only, types ignored."""
    factors_ppm = {FAST: PPM, SLOW: round(PPM * options.slower)}
    fast_cluster = read_cluster(f"{FAST}:8x4")
    kind = fast_cluster.device_types[FAST]
    costs = SlowerCosts(costs_for(fast_cluster, options), kind, factors_ppm)
    mixed = read_cluster(f"{FAST}:8x2, {SLOW}:8x2")
    result = checked(_problem(iteration, mixed, costs), "portfolio", limits)
    assert result.objective_us is not None
    alone = [
        checked(_problem(iteration, read_cluster(f"{name}:8x2"), costs), "portfolio", limits)
        for name in factors_ppm
    ]
    fast = _problem(iteration, fast_cluster, costs)
    ignored = checked(fast, "portfolio", limits).plan
    assert ignored is not None
    charged_us = charged_by_slowest_us(fast, ignored, mixed, factors_ppm)
    figures = [us for r in alone if (us := r.objective_us) is not None]
    return (result.objective_us, result.bound_us), (*figures, charged_us)


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


def _problem(iteration: Iteration, cluster: Cluster, costs: Any) -> CascadeProblem:  # noqa: ANN401
    """The iteration on a cluster; ``costs`` is a cost model by delegation."""
    return build_problem(iteration, cluster, costs)


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
