"""What it costs that other trainers cannot be told a plan: the price of the nearest that they can.

    python benchmarks/nearest.py --time-limit 3

Public language models with step times computed from data sheets, on mixed clusters. For each our
plan, and the nearest plan that Megatron-LM (torchtitan can be told the same), accelerate and
DeepSpeed can be told, all by the same closed form. No data is needed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from generated import run

from arachne_opt.costs.pipeline.analytic import analytic_profiles
from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.errors import ArachneError
from arachne_opt.exporters.grid import losses
from arachne_opt.exporters.trainers import TRAINERS
from arachne_opt.pipeline.memory import MIXED_PRECISION
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.presets import architecture
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.planning.expressible import nearest
from arachne_opt.planning.pipeline_service import PipelineService
from arachne_opt.solvers.base import Limits

MODELS = {"OPT-350M": (1024, 256), "GPT-Neo-2.7B": (2048, 128), "Llama-7B": (2048, 128)}
POOLS = (
    "A100-40=8,V100-16=16",
    "H100-80=8,A100-40=16",
    "A100-40=4,T4=8,V100-16=8",
    "A100-80=4+4+2+1,H100-80=8",
)
COLUMNS = ("megatron", "accelerate", "deepspeed")


def main() -> None:
    """Prints a row per model and cluster, and the mean of each column."""
    options = _options()
    limits = Limits(time_limit_s=options.time_limit, seed=options.seed)
    print(f"seed {options.seed}, {os.cpu_count()} cores, {options.time_limit:g} s a plan")
    head = "  ".join(f"{name:>10}" for name in COLUMNS)
    print(f"{'model':12}  {'cluster':28}  {'ours s':>8}  {head}  lost to Megatron-LM")
    found: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for problem in _problems(options.models, options.clusters):
        try:
            plan = PipelineService(None).plan(problem, limits)
        except ArachneError as error:
            print(f"{problem.model.name:12}  {problem.cluster.name:28}  no plan: {error}")
            continue
        ours_s = plan.verdict.price.iteration_s
        cells = []
        for name in COLUMNS:
            ratio = _ratio(problem, name, limits, ours_s)
            cells.append(f"{'–':>10}" if ratio is None else f"{100 * (ratio - 1):+8.1f} %")
            found[name] += [] if ratio is None else [ratio]
        lost = losses(plan.plan, TRAINERS["megatron"].abilities)
        row = f"{problem.model.name:12}  {problem.cluster.name:28}  {ours_s:8.3f}"
        print(f"{row}  {'  '.join(cells)}  {len(lost)}", flush=True)
    _means(found)


def _problems(models: Sequence[str], pools: Sequence[str]) -> Iterator[PipelineProblem]:
    for name in models:
        length, batch = MODELS[name]
        model = replace(architecture(name), sequence_length=length)
        for pool in pools:
            cluster = parse_pool(pool, 4)
            profiles = analytic_profiles(model, cluster)
            yield build_problem(profiles, cluster, batch, memory=MIXED_PRECISION)


def _ratio(problem: PipelineProblem, name: str, limits: Limits, ours_s: float) -> float | None:
    try:
        return nearest(problem, TRAINERS[name].abilities, limits).iteration_s / ours_s
    except ArachneError:
        return None


def _means(found: dict[str, list[float]]) -> None:
    for name, ratios in found.items():
        if ratios:
            mean = 100 * (sum(ratios) / len(ratios) - 1)
            worst = 100 * (max(ratios) - 1)
            print(f"{name}: {mean:+.1f} % on average, {worst:+.1f} % at most, {len(ratios)} plans")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds a plan")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--clusters", nargs="+", default=POOLS, help="pools of devices")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
