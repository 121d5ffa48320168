"""Whether near hits pay: re-solving after nodes were lost or gained, warm against cold.

    python benchmarks/near_hits.py --out near.jsonl
    python benchmarks/near_hits.py --out near.jsonl --stop-after 150   # in pieces

Iterations are planned on clusters of several sizes, and their plans are stored in one database.
Then a cluster loses or gains one to four nodes, and its iteration is planned again: cold for
``--time-limit`` seconds, and warm for ``--warm-limit`` seconds, from the plan that the database
finds as the nearest. A row says when the warm search was as good as the cold one at its end, with
the time for finding and adapting the plan. Rows that ``--out`` holds already are not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from generated import run

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
CLUSTERS = ("H100-80:8x8", "H100-80:8x16", "H100-80:8x32")
# Changes of one iteration's cluster.
_CHANGES_EACH = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One change of a cluster.

    Args:
        number: of the change.
        nodes: of the cluster before.
        change: nodes gained, below zero lost.
        early_us: best makespan of the cold search after as much time as the warm one gets.
        start_us: makespan of the plan that the near plan gave, None where nothing was near.
        reached_s: when the warm search was as good as the cold one at its end, look-up and
            start included; None where it never was.
        near_s: for finding and adapting the near plan.
    """

    number: int
    name: str
    nodes: int
    change: int
    cold_us: int
    early_us: int | None
    start_us: int | None
    warm_us: int
    reached_s: float | None
    near_s: float
    load: float


def main() -> None:
    """Runs what is missing and prints the table."""
    options, begin = _options(), time.monotonic()
    rows = kept(options.out)
    print(f"{options.model}, {options.devices_each} devices for each cascade,")
    print(f"cold {options.time_limit:g} s, warm {options.warm_limit:g} s,", end=" ")
    print(f"{options.workers} workers, {os.cpu_count()} cores, seed {options.seed}")
    head = ("iteration", "nodes", "cold", "cold early", "warm start", "warm", "reached after")
    print("{:14} {:>7} {:>10} {:>10} {:>10} {:>10} {:>14}".format(*head))
    with PlanStore.open(options.out.with_suffix(".db")) as store:
        for number in range(options.changes):
            late = options.stop_after and time.monotonic() - begin > options.stop_after
            if number not in rows and not late:
                rows[number] = _run(store, number, options)
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(rows[number])) + "\n")
            if number in rows:
                show(rows[number])
    summary([rows[number] for number in sorted(rows)], options)


def kept(path: Path) -> dict[int, Row]:
    """Rows of earlier runs by number."""
    if not path.exists():
        return {}
    return {row.number: row for row in (Row(**json.loads(r)) for r in path.open())}


def _run(store: PlanStore, number: int, options: argparse.Namespace) -> Row:
    """Plans before a change, where that was not done yet, then cold and warm after it."""
    group = number // _CHANGES_EACH
    base = read_cluster(options.clusters[group % len(options.clusters)])
    costs = analytic_for_cluster(model_spec(options.model), base)
    iteration = _iteration(group, base, options)
    dice = random.Random(f"{options.seed} {number}")
    # One node is left at least.
    change = max(dice.choice((-4, -3, -2, -1, 1, 2, 3, 4)), 1 - len(base.nodes))
    limits = Limits(
        time_limit_s=options.time_limit,
        seed=options.seed,
        workers=options.workers,
        deterministic=options.deterministic,
    )
    PlanService(store).plan_cascade(build_problem(iteration, base, costs), limits)
    after = build_problem(iteration, changed(base, change, dice), costs)
    return compare(store, after, limits, options, (number, len(base.nodes), change))


def compare(
    store: PlanStore,
    after: CascadeProblem,
    limits: Limits,
    options: argparse.Namespace,
    which: tuple[int, int, int],
) -> Row:
    """Plans a problem cold, then warm."""
    number, nodes, change = which
    history: list[Progress] = []
    cold = cascade_solver("portfolio").solve(after, limits, on_progress=history.append)
    assert cold.objective_us is not None
    begin = time.perf_counter()
    start = cascade_start(store, after)
    near_s = time.perf_counter() - begin
    warm_history: list[Progress] = []
    warm = cascade_solver("portfolio").solve(
        after,
        replace(limits, time_limit_s=options.warm_limit),
        on_progress=warm_history.append,
        start_plan=start.plan if start else None,
    )
    assert warm.objective_us is not None
    reached_s = _first_s(warm_history, cold.objective_us)
    return Row(
        number=number,
        name=after.name,
        nodes=nodes,
        change=change,
        cold_us=cold.objective_us,
        early_us=min(
            (
                p.objective_us
                for p in history
                if p.objective_us is not None and p.elapsed_s <= options.warm_limit
            ),
            default=None,
        ),
        start_us=start.plan.makespan_us if start else None,
        warm_us=warm.objective_us,
        reached_s=None if reached_s is None else near_s + reached_s,
        near_s=near_s,
        load=os.getloadavg()[0],
    )


def _first_s(history: Iterable[Progress], objective_us: int) -> float | None:
    """When a search was first as good as that."""
    good = (p for p in history if p.objective_us is not None and p.objective_us <= objective_us)
    return next((p.elapsed_s for p in good), None)


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
    parser.add_argument("--out", type=Path, required=True, help="rows; plans go to a .db beside it")
    parser.add_argument("--stop-after", type=float, default=0, help="begin no row after seconds")
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS)
    parser.add_argument("--model", default="hunyuanvideo-13b")
    parser.add_argument("--devices-each", type=int, default=4, help="devices for each cascade")
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of a cold solve")
    parser.add_argument("--warm-limit", type=float, default=1.9, help="seconds of a warm solve")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--deterministic", action="store_true", help="limits in units of work")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _iteration(group: int, cluster: Cluster, options: argparse.Namespace) -> Iteration:
    preset = PRESETS[group % len(PRESETS)]
    cascades = cluster.device_count // options.devices_each
    workload = generate_workload(preset, iterations=1, cascades=cascades, seed=options.seed + group)
    return replace(workload.iterations[0], name=f"{preset} {group}")


def show(row: Row) -> None:
    """Prints a row."""
    times = [row.cold_us, row.early_us, row.start_us, row.warm_us]
    cells = [format_seconds(t) if t is not None else "-" for t in times]
    reached = "never" if row.reached_s is None else f"{row.reached_s:.2f} s"
    print(
        f"{row.name:14} {row.nodes:>4}{row.change:+3d}",
        *(f"{c:>10}" for c in cells),
        f"{reached:>14}",
        flush=True,
    )


def summary(rows: Sequence[Row], options: argparse.Namespace) -> None:
    """Prints when searches were as good as cold ones, by size of the cluster and for all."""
    if not rows:
        return
    sizes = sorted({row.nodes for row in rows})
    for nodes in (*sizes, None):
        part = [row for row in rows if nodes in (row.nodes, None)]
        reached = sorted(math.inf if r.reached_s is None else r.reached_s for r in part)
        print(
            f"{nodes or 'all'} nodes, {len(part)} changes: as good as cold after",
            f"{statistics.median_low(reached):.2f} s (median), {sum(s <= 2 for s in reached)}",
            "within 2 s;",
        )
        print(
            f"  over cold after {options.time_limit:g} s: start {_mean(part, 'start_us'):.4f},",
            f"warm {_mean(part, 'warm_us'):.4f}, cold after {options.warm_limit:g} s",
            f"{_mean(part, 'early_us'):.4f} (geometric means)",
        )
    near_ms = 1e3 * statistics.median(r.near_s for r in rows)
    loads = statistics.fmean(r.load for r in rows)
    print(f"start plan found and adapted in {near_ms:.0f} ms (median); mean load {loads:.1f}")


def _mean(rows: Sequence[Row], name: str) -> float:
    """Geometric mean of a makespan over that of the cold search."""
    pairs = [(getattr(row, name), row.cold_us) for row in rows]
    logs = [math.log(value / cold) for value, cold in pairs if value is not None]
    return math.exp(statistics.fmean(logs)) if logs else math.nan


if __name__ == "__main__":
    run(main)
