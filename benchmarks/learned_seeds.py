"""What learned policies are worth: time to a good pipeline plan, and cascade plans after a second.

    python benchmarks/learned_seeds.py templates --results seeds.jsonl
    python benchmarks/learned_seeds.py cascades --results seeds.jsonl
    python benchmarks/learned_seeds.py cascades --results seeds.jsonl --data DATA/cascades
    python benchmarks/learned_seeds.py templates --scenarios scenarios.json --profiles FOLDER ...

Problems are of the held-out world (arachne_opt/learning/worlds.py): no device type, node size or
number of nodes is one that the template policy was trained on, no model and no device type one of
the cascade policy. Every measured run is a line of the result file; what is there already is not
run again. Seconds are processor time of a single worker, so that other work on the machine counts
little.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import types
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import generated

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.importers.instances import read_instances_sparingly
from arachne_opt.importers.pipeline_scenarios import read_scenarios
from arachne_opt.importers.scenario_problems import scenario_problem
from arachne_opt.learning.drawing import drawn_cascades, drawn_pipelines
from arachne_opt.learning.generation import priced_cells
from arachne_opt.learning.template_training import examine
from arachne_opt.learning.worlds import HELD_OUT
from arachne_opt.pipeline.plan_json import plan_from_json, plan_to_json
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.solvers import clock
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.pipeline.base import PipelineProgress, PipelineResult
from arachne_opt.solvers.pipeline.bounds import WorkBound
from arachne_opt.solvers.pipeline.incumbent import PipelineIncumbent
from arachne_opt.solvers.pipeline.planner import solve_pipeline
from arachne_opt.solvers.pipeline.workbench import Workbench
from arachne_opt.solvers.portfolio import solve_cascade
from arachne_opt.solvers.search import Parts
from arachne_opt.solvers.seeds.policy_file import CASCADES, TEMPLATES, PolicyFile
from arachne_opt.solvers.seeds.shipped import SHIPPED, resolved
from arachne_opt.solvers.seeds.structures import structure_of_plan
from arachne_opt.solvers.seeds.template_seeds import offer_seeds

GOOD = 1.01
COLD_S, SEEDED_S = 5.0, 1.0
_LONG = Limits(time_limit_s=1e6, deterministic=True, workers=1)
Row = dict[str, Any]


class Results:
    """A file of measured runs, one JSON line each, only ever appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Before the first run, so that none is lost where nothing can be written.
        path.open("a", encoding="utf-8").close()
        self.rows: dict[tuple[str, str, str], Row] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            self.rows[row["problem"], row["arm"], row["version"]] = row

    def get(self, problem: str, arm: str, version: str, run: Callable[[], Row]) -> Row:
        """The measured run, now if it is not there yet."""
        key = problem, arm, version
        if key not in self.rows:
            row = {"problem": problem, "arm": arm, "version": version, **run()}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self.rows[key] = row
        return self.rows[key]


def main() -> None:
    """Runs what is missing and prints the summary."""
    options = _options()
    results = Results(options.results)
    policy = resolved(SHIPPED, options.policy)
    version = "none" if policy is None else policy.version
    print(f"policy {version}, {generated.machine(options)}")
    if options.policy == TEMPLATES:
        _templates(options, results, policy)
    else:
        # Seconds of the limits are processor time.
        clock.time = types.SimpleNamespace(monotonic=time.process_time)  # type: ignore[assignment]
        _cascades(options, results, policy)


# ---------------------------------------------------------------- templates


def _templates(options: argparse.Namespace, results: Results, policy: PolicyFile | None) -> None:
    pairs = []
    for number, problem in enumerate(_clusters(options)):
        cold = results.get(problem.name, "cold", "", lambda p=problem: _cold(p))
        if cold["seconds"] is None or options.only_cold:
            continue
        seeded = results.get(
            problem.name,
            "seeded",
            policy.version if policy else "",
            lambda p=problem, c=cold, n=number: _seeded(p, policy, c, n < options.whole),
        )
        pairs.append((cold, seeded))
        print(_line(cold, seeded), flush=True)
    if pairs:
        _summary(pairs)


def _clusters(options: argparse.Namespace) -> Iterator[PipelineProblem]:
    if options.scenarios is not None:
        choices = PipelineOptions(allow_excess=True)
        for scenario in read_scenarios(options.scenarios):
            if fnmatchcase(scenario.name, options.only) and not scenario.events:
                yield scenario_problem(scenario, options.profiles, options=choices)
        return
    for number in range(options.first, options.first + options.count):
        yield drawn_pipelines(HELD_OUT, number)


def _cold(problem: PipelineProblem) -> Row:
    """The whole search without seeds."""
    seen, result = _timeline(problem, None)
    return {
        "timeline": seen,
        "seconds": result.iteration_s,
        "plan": plan_to_json(result.plan) if result.plan else None,
    }


def _timeline(
    problem: PipelineProblem, policy: PolicyFile | None
) -> tuple[list[tuple[float, float, str]], PipelineResult]:
    """Improvements as (processor seconds, seconds of an iteration, source), and the result."""
    note, seen = _noting()
    result = solve_pipeline(problem, TableCosts(problem), _LONG, on_progress=note, policy=policy)
    return seen, result


def _noting() -> tuple[Callable[[PipelineProgress], None], list[tuple[float, float, str]]]:
    seen: list[tuple[float, float, str]] = []
    began = time.process_time()

    def note(progress: PipelineProgress) -> None:
        seen.append((time.process_time() - began, progress.iteration_s, progress.source))

    return note, seen


def _seeded(problem: PipelineProblem, policy: PolicyFile | None, cold: Row, whole: bool) -> Row:
    """Seeds and then the search, and where the best known templates stand in the order.

    The search after the seeds is the one without them, step for step, so that it is measured once;
    ``whole`` runs it all the same, to show that the end is as it is put together here.
    """
    began = time.process_time()
    note, seen = _noting()
    bench = Workbench(problem, TableCosts(problem))
    best = PipelineIncumbent(bench, clock.Clock(_LONG), 0.0, note)
    offer_seeds(bench, WorkBound(bench.space), best, policy, lambda: False)
    spent_s = time.process_time() - began
    seeds_s = seen[-1][1] if seen else math.inf
    timeline = [*seen]
    for at, seconds, source in cold["timeline"]:
        if seconds < (timeline[-1][1] if timeline else math.inf):
            timeline.append((at + spent_s, seconds, source))
    if whole:
        end_s = _timeline(problem, policy)[1].iteration_s
        assert end_s is not None
        assert math.isclose(end_s, timeline[-1][1], rel_tol=1e-9), (end_s, timeline[-1])
    wanted = structure_of_plan(plan_from_json(cold["plan"]))
    priced = priced_cells(problem)
    score = examine(problem, priced, wanted, policy)
    rule = examine(problem, priced, wanted, None)
    return {
        "timeline": timeline,
        "seconds": timeline[-1][1],
        "seeds_s": seeds_s if seen else None,
        "spent_s": spent_s,
        "rank": score.rank if score else None,
        "regret": score.regret if score else None,
        "plan_rank": score.plan_rank if score else None,
        "rule_rank": rule.rank if rule else None,
    }


def _reached(row: Row, seconds: float) -> float | None:
    """Processor seconds until an iteration takes at most so long."""
    return next((at for at, found, _ in row["timeline"] if found <= seconds), None)


def _line(cold: Row, seeded: Row) -> str:
    goal = GOOD * cold["seconds"]
    times = [_reached(row, goal) for row in (cold, seeded)]
    shown = " ".join(f"{t:7.3f}" if t is not None else "      –" for t in times)
    ratio = seeded["seconds"] / cold["seconds"]
    return f"{cold['problem']:14} {cold['seconds']:9.3f} s {shown}  {ratio:.4f} {seeded['rank']}"


def _summary(pairs: list[tuple[Row, Row]]) -> None:
    ratios = []
    for cold, seeded in pairs:
        goal = GOOD * cold["seconds"]
        before, after = _reached(cold, goal), _reached(seeded, goal)
        if before is not None and after is not None:
            ratios.append(after / before)
    worse = sum(s["seconds"] > c["seconds"] * (1 + 1e-9) for c, s in pairs)
    better = sum(s["seconds"] < c["seconds"] * (1 - 1e-9) for c, s in pairs)
    count = len(pairs)
    print(f"{count} held-out clusters; time to within {GOOD - 1:.0%} of the final plan, over that")
    print(
        f"  without seeds: {_mean(ratios):.3f} in geometric mean; <= 1/4 on {_share(ratios, 0.25)}"
    )
    print(f"final plan worse on {worse}, better on {better}")
    for key, what in (
        ("rank", "the template with the best exact price"),
        ("rule_rank", "the same by estimates alone"),
        ("plan_rank", "the template of the final plan's largest pipeline"),
    ):
        inside = sum(s[key] is not None and s[key] < 8 for _, s in pairs) / count
        print(f"{what}: among the first 8 on {inside:.1%}")
    near = sum(s["regret"] is not None and s["regret"] <= 1e-3 for _, s in pairs) / count
    print(f"one of the first 8 within 0.1% of the best exact price on {near:.1%}")


# ---------------------------------------------------------------- cascades


def _cascades(options: argparse.Namespace, results: Results, policy: PolicyFile | None) -> None:
    rows = []
    version = policy.version if policy else ""
    for problem in _problems(options):
        cold = results.get(
            problem.name, "cold", "", lambda p=problem: _placed(p, COLD_S, None, options.seed)
        )
        short = cold
        if options.short:
            short = results.get(
                problem.name,
                "short",
                "",
                lambda p=problem: _placed(p, SEEDED_S, None, options.seed),
            )
        seeded = results.get(
            problem.name,
            "seeded",
            version,
            lambda p=problem: _placed(p, SEEDED_S, policy, options.seed),
        )
        rows.append((cold, short, seeded))
        ratio = seeded["makespan_us"] / cold["makespan_us"]
        print(f"{problem.name:24} {problem.cluster.device_count:4} {ratio:.4f}", flush=True)
    won = sum(s["makespan_us"] <= c["makespan_us"] for c, _, s in rows)
    tied = sum(a["makespan_us"] <= c["makespan_us"] for c, a, _ in rows)
    for what, index in (("with seeds", 2), *([("without", 1)] if options.short else [])):
        mean = _mean([row[index]["makespan_us"] / row[0]["makespan_us"] for row in rows])
        print(f"{what}, {SEEDED_S:g} s: makespan over that without, {COLD_S:g} s: {mean:.4f}")
    print(f"no longer than without seeds after {COLD_S:g} s: {won} of {len(rows)}")
    if options.short:
        print(f"no longer without seeds after {SEEDED_S:g} s either: {tied} of {len(rows)}")


def _problems(options: argparse.Namespace) -> Iterator[CascadeProblem]:
    if options.data is not None:
        chosen = slice(options.first, options.first + options.count)
        for instance in read_instances_sparingly(options.data)[chosen]:
            yield instance.problem
        return
    for number in range(options.first, options.first + options.count):
        yield drawn_cascades(HELD_OUT, number)


def _placed(problem: CascadeProblem, seconds: float, policy: PolicyFile | None, seed: int) -> Row:
    limits = Limits(time_limit_s=seconds, workers=1, seed=seed)
    result = solve_cascade(problem, limits, parts=Parts(policy=policy))
    return {
        "makespan_us": result.objective_us,
        "bound_us": result.bound_us,
        "timeline": [(h.elapsed_s, h.objective_us, h.source) for h in result.history],
    }


def _mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan


def _share(values: list[float], limit: float) -> str:
    return f"{sum(v <= limit for v in values) / max(1, len(values)):.0%}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("policy", choices=(CASCADES, TEMPLATES))
    parser.add_argument("--results", type=Path, required=True, help="file of measured runs")
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--count", type=int, help="problems [200 clusters, 100 iterations]")
    parser.add_argument("--data", type=Path, help="public instances in place of drawn ones")
    parser.add_argument("--scenarios", type=Path, help="public scenarios in place of drawn ones")
    parser.add_argument("--profiles", type=Path, help="profiles of the scenarios")
    parser.add_argument("--only", default="*", metavar="GLOB", help="scenarios of such a name")
    parser.add_argument("--whole", type=int, default=0, help="search so many to the end again")
    parser.add_argument("--short", action="store_true", help="a second without seeds, too")
    parser.add_argument("--only-cold", action="store_true", help="run nothing with seeds")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.count = options.count or (200 if options.policy == TEMPLATES else 100)
    options.workers, options.deterministic = 1, False
    return options


if __name__ == "__main__":
    generated.run(main)
