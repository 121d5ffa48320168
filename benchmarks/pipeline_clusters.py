"""How much shorter iterations become than under the best of five peer-like rules, on any cluster.

    python benchmarks/pipeline_clusters.py --profiles DATA/pipelines/sailor --count 12
    python benchmarks/pipeline_clusters.py --profiles DATA/pipelines/sailor --plot gain.png

Random clusters of two to four device types with nodes of one to eight devices, three dense models
and a mixture of experts made from one of them by rule. Step times are measured where there are
profiles and estimated elsewhere; the price is the closed form, the same for all. Rules do not know
of expert parallelism. Clusters on which no plan exists at all are drawn anew. A gain is the best
rule's time over ours, minus one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from arachne_opt.bench.pipelines import BEST_RULE, PipelineRow, compare_pipelines
from arachne_opt.bench.pipelines import summarise_pipelines as summarise
from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.moe import MoeRule, moe_profiles
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import ArachneError, MissingDependencyError
from arachne_opt.importers.pipeline_profiles import read_profiles
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.solvers.base import Limits

TYPES = ("A100-40", "V100-16", "GH-96", "A100-80")
DENSE = {"OPT-350": 1024, "GPT-Neo-2.7": 1024, "OPT-30": 512}
MOE, MOE_BASE, MOE_BATCH = "GPT-MoE 2.7B x 16", "GPT-Neo-2.7", 1024
MOE_RULE = MoeRule(name=MOE, experts=16, top_k=2, hidden=2560, imbalance=1.25)
MODELS = (*DENSE, MOE)
NODE_SIZES = (1, 2, 4, 8)
PUBLISHED = {"dense": 0.845, "mixture of experts": 3.6}  # gains: 84.5 %, and 4.6 times


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random cluster with the comparison on it."""

    model: str
    row: PipelineRow

    @property
    def gain(self) -> float | None:
        """Best rule's time over ours, minus one; None where no rule has a plan."""
        best_s, ours_s = self.row.best_rule_s, self.row.iteration_s
        return None if best_s is None or ours_s is None else best_s / ours_s - 1


def main() -> None:
    """Runs the comparison, prints rows and summary, and draws the picture."""
    options = _options()
    print(f"seed {options.seed}, {os.cpu_count()} cores, {options.time_limit:g} s a plan")
    print(f"{'model':18} {'ours s':>9} {'best rule s':>11} {'gain':>8}  rule, cluster")
    found: list[Drawn] = []
    for problem in _problems(options):
        row = compare_pipelines(problem, Limits(time_limit_s=options.time_limit))
        if row.result is None:
            continue
        found.append(Drawn(problem.model.name, row))
        _print(found[-1])
        if len(found) == options.count:
            break
    _summary(found)
    if options.plot:
        draw(found, options.plot)


def _problems(options: argparse.Namespace) -> Iterator[PipelineProblem]:
    """Random problems without end, the models in turn."""
    rng = random.Random(options.seed)
    while True:
        for model in options.models:
            kinds = rng.sample(TYPES, rng.randint(2, len(TYPES)))
            pool = ",".join(f"{kind}={_nodes(rng)}" for kind in sorted(kinds))
            yield build_problem(
                _profiles(options.profiles, model),
                parse_pool(pool),
                DENSE.get(model, MOE_BATCH),
                options=PipelineOptions(allow_excess=True),
                allow_estimates=True,
                name=f"{model} on {pool}",
            )


def _nodes(rng: random.Random) -> str:
    """Nodes of one size mostly, of any sizes otherwise."""
    count = rng.choice((1, 2, 3, 4, 6, 8))
    size = rng.choice(NODE_SIZES)
    mixed = rng.random() < 1 / 3
    return "+".join(str(rng.choice(NODE_SIZES) if mixed else size) for _ in range(count)) + (
        "+1" if count == 1 else ""
    )


@cache
def _profiles(folder: Path, model: str) -> Profiles:
    if model == MOE:
        return moe_profiles(read_profiles(folder, MOE_BASE), MOE_RULE)
    return read_profiles(folder, model)


def _print(drawn: Drawn) -> None:
    row, gain = drawn.row, drawn.gain
    times = {name: s for name, s in row.rules_s.items() if s is not None}
    rule = min(times, key=times.__getitem__) if times else "no rule has a plan"
    best = f"{row.best_rule_s:11.3f}" if row.best_rule_s is not None else f"{'–':>11}"
    told = f"{100 * gain:6.1f} %" if gain is not None else f"{'–':>8}"
    print(
        f"{drawn.model:18} {row.iteration_s:9.3f} {best} {told}  {rule}, "
        f"{row.problem.cluster.name}",
        flush=True,
    )


def _summary(found: Sequence[Drawn]) -> None:
    for kind, drawn in _by_kind(found).items():
        ratios = summarise([d.row for d in drawn]).get(BEST_RULE)
        alone = sum(d.gain is None for d in drawn)
        if ratios is None:
            print(f"{kind}: no rule has a plan on any of {alone} clusters")
            continue
        print(
            f"{kind}: over the best rule {100 * (1 / ratios.mean - 1):.1f} % in geometric mean, "
            f"at most {100 * (1 / ratios.best - 1):.1f} %, at least "
            f"{100 * (1 / ratios.worst - 1):.1f} %; shorter on {ratios.wins}, equal on "
            f"{ratios.ties}, longer on {ratios.losses} of {ratios.count}; no rule has a plan on "
            f"{alone} more"
        )


def _by_kind(found: Sequence[Drawn]) -> dict[str, list[Drawn]]:
    kinds = {
        "dense": [d for d in found if d.model in DENSE],
        "mixture of experts": [d for d in found if d.model not in DENSE],
    }
    return {kind: drawn for kind, drawn in kinds.items() if drawn}


def draw(found: Sequence[Drawn], path: Path) -> None:
    """Writes the sorted gains of each model as a picture.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        hint = "pip install 'arachne-opt[plot]'"
        raise MissingDependencyError("matplotlib is not installed", hint=hint) from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for model in dict.fromkeys(d.model for d in found):
        gains = sorted(1 + d.gain for d in found if d.model == model and d.gain is not None)
        shares = [(n + 0.5) / len(gains) for n in range(len(gains))]
        axes.plot(shares, gains, "-o", label=model)
    for kind, gain in PUBLISHED.items():
        axes.axhline(1 + gain, color="grey", lw=0.8)
        axes.annotate(f"published at most, {kind}", (0, 1 + gain), fontsize="small")
    axes.set_yscale("log", base=2)
    axes.set_xlabel("share of clusters")
    axes.set_ylabel("best rule's iteration time over ours")
    axes.set_title("Gain over the best of five rules, by closed form")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    print(f"picture: {path}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=Path, required=True, help="folder of profiles")
    parser.add_argument("--count", type=int, default=100, help="clusters")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds a plan")
    parser.add_argument("--plot", type=Path, help="write a picture here (extra plot)")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except ArachneError as error:
        sys.exit(f"error: {error}")
