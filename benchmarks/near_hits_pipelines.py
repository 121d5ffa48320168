"""Whether near hits pay for pipelines: re-solving after nodes were lost or gained, warm and cold.

    python benchmarks/near_hits_pipelines.py --profiles DATA/pipelines/sailor --out near.jsonl

Models are planned on mixed clusters, and their plans are stored in one database. Then a cluster
loses or gains one to four nodes of one type, and the model is planned again: cold for
``--time-limit`` seconds, and warm for ``--warm-limit`` seconds, from the plan that the database
finds as the nearest. Rows are those of ``near_hits.py``, with iteration times.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

from generated import run
from near_hits import Row, kept, show, summary

from arachne_opt.cluster import Cluster
from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.db.store import PlanStore
from arachne_opt.importers.pipeline_profiles import read_profiles
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.planning.warm_starts import pipeline_start
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.base import PipelineProgress
from arachne_opt.solvers.pipeline.registry import pipeline_solver
from arachne_opt.units import US_PER_S

# Models with their global batch, and clusters: eight to sixteen nodes of four GPUs.
MODELS = (("OPT-350", 1024), ("GPT-Neo-2.7", 1024))
POOLS = ("A100-40=16,V100-16=16", "A100-40=32,V100-16=32", "A100-40=16,V100-16=48")
_CHANGES_EACH = 5


def main() -> None:
    """Runs what is missing and prints the table."""
    options, begin = _options(), time.monotonic()
    rows = kept(options.out)
    print(f"cold {options.time_limit:g} s, warm {options.warm_limit:g} s,", end=" ")
    print(f"{os.cpu_count()} cores, seed {options.seed}")
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


def _run(store: PlanStore, number: int, options: argparse.Namespace) -> Row:
    """Plans before a change, where that was not done yet, then cold and warm after it."""
    group, dice = number // _CHANGES_EACH, random.Random(f"{options.seed} {number}")
    model, batch = MODELS[group % len(MODELS)]
    base = parse_pool(POOLS[group % len(POOLS)])
    change = dice.choice((-4, -3, -2, -1, 1, 2, 3, 4))
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed, workers=options.workers)
    PipelineService(store).plan(_problem(options.profiles, model, base, batch), limits)
    problem = _problem(options.profiles, model, changed(base, change, dice), batch)
    cold: list[PipelineProgress] = []
    solver = pipeline_solver("portfolio")
    best = solver.solve(problem, TableCosts(problem), limits, on_progress=cold.append)
    begin = time.perf_counter()
    start = pipeline_start(store, problem)
    near_s = time.perf_counter() - begin
    warm: list[PipelineProgress] = []
    found = solver.solve(
        problem,
        TableCosts(problem),
        replace(limits, time_limit_s=options.warm_limit),
        on_progress=warm.append,
        start_plan=start.plan if start else None,
    )
    assert best.iteration_s is not None
    assert found.iteration_s is not None
    good = [p.elapsed_s for p in warm if p.iteration_s <= best.iteration_s * (1 + 1e-9)]
    early = [p.iteration_s for p in cold if p.elapsed_s <= options.warm_limit]
    first = [p.iteration_s for p in warm if p.source == "start plan"]
    return Row(
        number=number,
        name=f"{model} {group}",
        nodes=len(base.nodes),
        change=change,
        cold_us=_us(best.iteration_s),
        early_us=_us(min(early)) if early else None,
        start_us=_us(first[0]) if first else None,
        warm_us=_us(found.iteration_s),
        reached_s=near_s + good[0] if good else None,
        near_s=near_s,
        load=os.getloadavg()[0],
    )


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)


def changed(cluster: Cluster, change: int, dice: random.Random) -> Cluster:
    """The cluster with fewer or more nodes of one of its types; some of each type stay."""
    kind = dice.choice(sorted({node.device_type.name for node in cluster.nodes}))
    its = [node for node in cluster.nodes if node.device_type.name == kind]
    others = [node for node in cluster.nodes if node.device_type.name != kind]
    if change < 0:
        its = its[: max(1, len(its) + change)]
    else:
        its += [replace(its[0], name=f"new{i}") for i in range(change)]
    return replace(cluster, nodes=(*its, *others))


def _problem(folder: Path, model: str, cluster: Cluster, batch: int) -> PipelineProblem:
    options = PipelineOptions(allow_excess=True)
    return build_problem(
        _profiles(folder, model), cluster, batch, options=options, allow_estimates=True
    )


@cache
def _profiles(folder: Path, model: str) -> Profiles:
    return read_profiles(folder, model)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="rows; plans go to a .db beside it")
    parser.add_argument("--stop-after", type=float, default=0, help="begin no row after seconds")
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of a cold solve")
    parser.add_argument("--warm-limit", type=float, default=1.9, help="seconds of a warm solve")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
