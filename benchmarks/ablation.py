"""What the parts of the search are worth: the whole of it against itself without one part.

    python benchmarks/ablation.py --data DATA/cascades --only 'wa_g32*' --only 'n4_g32_it0'
    python benchmarks/ablation.py --sizes 32 128

Without --data, iterations are generated. "hints" are the list schedules that the search starts
from; without them it starts from the best uniform degree. "topology": the search believes that
groups over several nodes cost nothing, and its plan is then charged what they do cost. Makespans
are compared with those of the whole search; gaps are over the best bound of all variants.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from generated import (
    checked,
    conditions,
    generated_problems,
    limits_of,
    machine,
    problem_options,
    run,
)

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.verify import verify
from arachne_opt.cluster import TopologyPenalty
from arachne_opt.importers.instances import read_instances_sparingly
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import from_plan, in_start_order, to_plan
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.solvers.search import Parts

Variant = Callable[[CascadeProblem, Limits], tuple[int, int]]


def main() -> None:
    """Solves every problem with every variant and prints a row for each variant."""
    options = _options()
    problems = _problems(options)
    limits = limits_of(options)
    print(machine(options) if options.data else conditions(options))
    unit = "units of work" if limits.deterministic else "s"
    print(f"{len(problems)} problems, {limits.time_limit_s:g} {unit} each")
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in VARIANTS}
    for problem in problems:
        for name, variant in VARIANTS.items():
            found[name].append(variant(problem, limits))
        cells = (f"{name} {found[name][-1][0] / 1e6:.3f}" for name in VARIANTS)
        print(f"  {problem.name}: {', '.join(cells)}", flush=True)
    print_table(found)


def print_table(found: dict[str, list[tuple[int, int]]]) -> None:
    """A row per variant from (makespan, bound) of each problem."""
    whole = [makespan for makespan, _ in found["whole"]]
    bounds = [max(bound for _, bound in row) for row in zip(*found.values(), strict=True)]
    print(f"{'variant':20} makespan  worst  longer  shorter  mean gap  its own gap")
    for name, row in found.items():
        ratios = [makespan / other for (makespan, _), other in zip(row, whole, strict=True)]
        gap = _mean([m / bound - 1 for (m, _), bound in zip(row, bounds, strict=True)])
        own = _mean([makespan / bound - 1 for makespan, bound in row])
        mean = math.exp(_mean([math.log(ratio) for ratio in ratios]))
        longer, shorter = sum(r > 1.001 for r in ratios), sum(r < 0.999 for r in ratios)
        print(
            f"{name:20} {mean:8.3f} {max(ratios):6.3f} {longer:7} {shorter:8} "
            f"{100 * gap:7.1f} % {100 * own:9.1f} %"
        )


def _with(parts: Parts) -> Variant:
    def solve(problem: CascadeProblem, limits: Limits) -> tuple[int, int]:
        return _figures(problem, solve_cascade(problem, limits, parts=parts))

    return solve


def _without_hints(problem: CascadeProblem, limits: Limits) -> tuple[int, int]:
    start = checked(problem, "best-uniform", limits).plan
    parts = Parts(lists=False)
    return _figures(problem, solve_cascade(problem, limits, parts=parts, start_plan=start))


def _without_topology(problem: CascadeProblem, limits: Limits) -> tuple[int, int]:
    flat = dataclasses.replace(problem.cluster, penalty=TopologyPenalty(scale=0.0))
    result = solve_cascade(dataclasses.replace(problem, cluster=flat), limits)
    assert result.plan is not None
    plan = charged(problem, result.plan)
    verify(problem, plan, plan.makespan_us)
    # A bound without penalties holds with them too.
    return plan.makespan_us, result.bound_us


def charged(problem: CascadeProblem, plan: CascadePlan) -> CascadePlan:
    """The groups and the order of a plan, with the times that they take on a problem's cluster."""
    digest = Digest(problem)
    schedule = from_plan(digest, plan)
    assert schedule is not None
    return to_plan(digest, in_start_order(digest, schedule))


VARIANTS: dict[str, Variant] = {
    "whole": _with(Parts()),
    "no hints": _without_hints,
    "no LNS": _with(Parts(neighbourhoods=False)),
    "no walks": _with(Parts(walks=False)),
    "no pooled proofs": _with(Parts(proofs=False)),
    "no area cut": _with(Parts(area_cut=False)),
    "no pods": _with(Parts(pods=False)),
    "no topology": _without_topology,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    problem_options(parser)
    parser.add_argument("--data", type=Path, help="public instances in place of generated ones")
    parser.add_argument("--only", action="append", help="glob of instances")
    parser.add_argument("--sizes", type=int, nargs="+", default=(32, 128))
    parser.add_argument("--mixtures", nargs="+", default=("720p", "mixed"))
    parser.add_argument("--iterations", type=int, default=2, help="of each mixture and size")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds a solve")
    return parser.parse_args()


def _problems(options: argparse.Namespace) -> list[CascadeProblem]:
    if options.data:
        return [i.problem for i in read_instances_sparingly(options.data, only=options.only)]
    return [
        problem
        for mixture in options.mixtures
        for devices in options.sizes
        for problem in generated_problems(mixture, devices, options.iterations, options)
    ]


def _figures(problem: CascadeProblem, result: Result) -> tuple[int, int]:
    assert result.plan is not None
    assert result.objective_us is not None
    verify(problem, result.plan, result.objective_us)
    return result.objective_us, result.bound_us


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    run(main)
