"""Whether near hits pay: re-solving after nodes were lost or gained, warm against cold.

    python benchmarks/near_hits.py --changes 50

An iteration is planned on the cluster before the change, and that plan is stored. Then the cluster
loses or gains one to four nodes, and the iteration is planned again: cold for ``--time-limit``
seconds, and warm, from the plan that the database finds as the nearest. A row says when the warm
search was as good as the cold one at its end. Prints the median over all changes.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.db.store import PlanStore
from arachne_opt.models import model_spec
from arachne_opt.planning.service import PlanService
from arachne_opt.planning.warm_starts import cascade_start
from arachne_opt.solvers.base import Limits, Progress
from arachne_opt.solvers.registry import cascade_solver
from arachne_opt.units import format_seconds
from arachne_opt.workload import Iteration
from arachne_opt.workload_generator import generate_workload

PRESETS = ("mixed", "720p", "360p", "1080p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One change of the cluster.

    Args:
        start_us: makespan that the plan of the near problem gives at once.
        reached_s: when the warm search was as good as the cold one at its end, look-up and
            start included; None where it never was.
        early_us: best makespan of a cold search in as much time as the warm one is granted.
    """

    name: str
    change: int
    cold_us: int
    early_us: int | None
    start_us: int
    warm_us: int
    reached_s: float | None
    near_s: float


def main() -> None:
    """Runs the comparison and prints the table."""
    options = _options()
    base = read_cluster(options.cluster)
    costs = analytic_for_cluster(model_spec(options.model), base)
    dice = random.Random(options.seed)
    print(f"{options.model} on {options.cluster} before the change, {options.cascades} cascades,")
    print(
        f"cold {options.time_limit:g} s, warm {options.warm_limit:g} s, {options.workers} workers,"
    )
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, seed {options.seed}")
    head = ("iteration", "nodes", "cold", "cold early", "warm start", "warm", "reached after")
    print("{:12} {:>5} {:>10} {:>10} {:>10} {:>10} {:>14}".format(*head))
    rows = []
    for number in range(options.changes):
        iteration = _iteration(number, options)
        change = dice.choice((-4, -3, -2, -1, 1, 2, 3, 4))
        before = build_problem(iteration, base, costs)
        after = build_problem(iteration, changed(base, change, dice), costs)
        rows.append(compare(before, after, change, options))
        _print(rows[-1])
    _summary(rows, options)


def compare(
    before: CascadeProblem, after: CascadeProblem, change: int, options: argparse.Namespace
) -> Row:
    """Plans before the change, then cold and warm after it."""
    limits = Limits(
        time_limit_s=options.time_limit,
        seed=options.seed,
        workers=options.workers,
        deterministic=options.deterministic,
    )
    cold_history: list[Progress] = []
    cold = cascade_solver("portfolio").solve(after, limits, on_progress=cold_history.append)
    assert cold.objective_us is not None
    history: list[Progress] = []
    with tempfile.TemporaryDirectory() as folder, PlanStore.open(Path(folder, "p.db")) as store:
        PlanService(store).plan_cascade(before, limits)
        begin = time.perf_counter()
        start = cascade_start(store, after)
        near_s = time.perf_counter() - begin
        assert start is not None
        short = replace(limits, time_limit_s=options.warm_limit)
        solver = cascade_solver("portfolio")
        warm = solver.solve(after, short, on_progress=history.append, start_plan=start.plan)
    assert warm.objective_us is not None
    good = [
        p for p in history if p.objective_us is not None and p.objective_us <= cold.objective_us
    ]
    early = [
        p.objective_us
        for p in cold_history
        if p.objective_us is not None and p.elapsed_s <= options.warm_limit
    ]
    return Row(
        name=after.name,
        change=change,
        cold_us=cold.objective_us,
        early_us=min(early, default=None),
        start_us=start.plan.makespan_us,
        warm_us=warm.objective_us,
        reached_s=near_s + good[0].elapsed_s if good else None,
        near_s=near_s,
    )


def changed(cluster: Cluster, change: int, dice: random.Random) -> Cluster:
    """The cluster without some nodes, whichever, or with more of the first kind."""
    nodes = list(cluster.nodes)
    if change < 0:
        kept = sorted(dice.sample(range(len(nodes)), len(nodes) + change))
        return replace(cluster, nodes=tuple(nodes[n] for n in kept))
    more = [replace(nodes[0], name=f"new{i}") for i in range(change)]
    return replace(cluster, nodes=(*nodes, *more))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", default="H100-80:8x8")
    parser.add_argument("--model", default="hunyuanvideo-13b")
    parser.add_argument("--cascades", type=int, default=24)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of a cold solve")
    parser.add_argument("--warm-limit", type=float, default=4.0, help="seconds of a warm solve")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--deterministic", action="store_true", help="limits in units of work")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _iteration(number: int, options: argparse.Namespace) -> Iteration:
    preset = PRESETS[number % len(PRESETS)]
    workload = generate_workload(
        preset, iterations=1, cascades=options.cascades, seed=options.seed + number
    )
    return replace(workload.iterations[0], name=f"{preset} {number}")


def _print(row: Row) -> None:
    times = [row.cold_us, row.early_us, row.start_us, row.warm_us]
    cells = [format_seconds(t) if t is not None else "-" for t in times]
    reached = "never" if row.reached_s is None else f"{row.reached_s:.2f} s"
    print(
        f"{row.name:12} {row.change:+5d}",
        *(f"{c:>10}" for c in cells),
        f"{reached:>14}",
        flush=True,
    )


def _summary(rows: Sequence[Row], options: argparse.Namespace) -> None:
    as_good = sum(r.warm_us <= r.cold_us for r in rows)
    ratio = math.exp(statistics.fmean(math.log(r.start_us / r.cold_us) for r in rows))
    final = math.exp(statistics.fmean(math.log(r.warm_us / r.cold_us) for r in rows))
    limits = f"{options.warm_limit:g} warm and {options.time_limit:g} cold"
    if options.deterministic:
        print(f"{len(rows)} changes, units of work: {limits};", end=" ")
    else:
        reached = sorted(math.inf if r.reached_s is None else r.reached_s for r in rows)
        in_time = sum(s <= 2 for s in reached)
        print(f"{len(rows)} changes: as good as cold after {statistics.median(reached):.2f} s")
        print(f"(median), {in_time} of {len(rows)} within 2 s; after {limits} seconds", end=" ")
    print(f"warm is as good in {as_good} of {len(rows)}")
    print(f"start / cold {ratio:.4f}, warm / cold {final:.4f} (geometric means)")
    print(
        f"start plan found and adapted in {1e3 * statistics.median(r.near_s for r in rows):.0f} ms"
    )


if __name__ == "__main__":
    main()
