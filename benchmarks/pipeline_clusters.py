"""How much shorter iterations become than under the best of five peer-like rules, on any cluster.

    python benchmarks/pipeline_clusters.py --profiles DATA/pipelines/sailor --out rows.jsonl
    python benchmarks/pipeline_clusters.py --profiles DATA/pipelines/sailor --out rows.jsonl \
        --plot gain.png

Random clusters of two to four device types with nodes of one to eight devices, three dense models
and a mixture of experts made from one of them by rule. Step times are measured where there are
profiles and estimated elsewhere; the price is the closed form, the same for all. Rules do not know
of expert parallelism: a mixture of experts is trained with all experts in each replica. Clusters on
which no plan exists at all, by proof, are drawn anew. A gain is the best rule's time over ours,
minus one. A cluster on which we found no plan in time and a rule has one is a loss; one on which
nobody has a plan does not count.

Rows are kept in ``--out``; what is in it is not run again, and ``--count 0`` only shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import generated
from processor_time import count_processor_time

from arachne_opt.bench.pipelines import PipelineRow, compare_pipelines
from arachne_opt.bench.ratios import ratios_of
from arachne_opt.costs.pipeline.build import build_problem
from arachne_opt.costs.pipeline.moe import MoeRule, moe_profiles
from arachne_opt.costs.pipeline.profiles import Profiles
from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.importers.pipeline_profiles import read_profiles
from arachne_opt.pipeline.pool import parse_pool
from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.units import us_from_seconds

TYPES = ("A100-40", "V100-16", "GH-96", "A100-80")
DENSE = {"OPT-350": 1024, "GPT-Neo-2.7": 1024, "OPT-30": 512}
MOE, MOE_BASE, MOE_BATCH = "GPT-MoE 2.7B x 16", "GPT-Neo-2.7", 1024
MOE_RULE = MoeRule(name=MOE, experts=16, top_k=2, hidden=2560, imbalance=1.25)
MODELS = (*DENSE, MOE)
NODE_SIZES = (1, 2, 4, 8)
PUBLISHED = {"dense": 0.845, "mixture of experts": 3.6}  # gains: 84.5 %, and 4.6 times


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A random cluster with the comparison on it.

    Args:
        number: of the draw.
        exists: False where no plan can exist, by proof.
        ours_s: our iteration, None where the limit passed before a plan.
        rules_s: of each rule, None where it has no plan.
        time_limit_s: of our search.
        load: of the machine, when the row was done.
    """

    number: int
    seed: int
    model: str
    pool: str
    exists: bool
    ours_s: float | None = None
    cautious_s: float | None = None
    bound_s: float | None = None
    rules_s: dict[str, float | None]
    time_limit_s: float
    planning_s: float | None = None
    load: float

    @property
    def best_rule(self) -> tuple[str, float] | None:
        """The rule with the least time."""
        times = {name: s for name, s in self.rules_s.items() if s is not None}
        name = min(times, key=times.__getitem__, default=None)
        return None if name is None else (name, times[name])

    @property
    def counts(self) -> bool:
        """Whether anybody has a plan."""
        return self.ours_s is not None or self.best_rule is not None

    @property
    def gain(self) -> float | None:
        """Best rule's time over ours, minus one; None where either is missing."""
        best = self.best_rule
        return None if best is None or self.ours_s is None else best[1] / self.ours_s - 1


def main() -> None:
    """Runs what is missing, prints rows and summary, and draws the picture."""
    options, began = _options(), time.monotonic()
    if options.processor_time:
        count_processor_time()
    rows = kept(options.out, options.seed)
    print(f"seed {options.seed}, {os.cpu_count()} cores, {options.time_limit:g} s a plan,", end=" ")
    print(f"{options.rule_limit:g} s a rule")
    print(f"{'':>4} {'model':18} {'ours s':>9} {'best rule s':>11} {'gain':>8}  rule, cluster")
    for row in rows.values():
        show(row)
    number = 0
    while sum(row.counts for row in rows.values()) < options.count:
        if number not in rows:
            if options.stop_after and time.monotonic() - began > options.stop_after:
                break
            rows[number] = run(number, options)
            _keep(rows[number], options.out)
            show(rows[number])
        number += 1
    counted = [row for row in rows.values() if row.counts]
    print(
        f"{len(rows)} draws: no plan exists on {sum(not row.exists for row in rows.values())},",
        end=" ",
    )
    print(f"nobody found one on {sum(row.exists and not row.counts for row in rows.values())}")
    summary(counted)
    if options.plot:
        draw(counted, options.plot)


def run(number: int, options: argparse.Namespace) -> Row:
    """Draws a cluster and compares on it."""
    model, pool = drawn(number, options)
    problem = _problem(model, pool, options.profiles)
    found = compare_pipelines(
        problem,
        Limits(time_limit_s=options.time_limit, seed=options.seed),
        rule_limits=Limits(time_limit_s=options.rule_limit),
    )
    return _row(found, number, model, pool, options)


def _row(
    found: PipelineRow, number: int, model: str, pool: str, options: argparse.Namespace
) -> Row:
    result = found.result
    return Row(
        number=number,
        seed=options.seed,
        model=model,
        pool=pool,
        exists=result is not None,
        ours_s=found.iteration_s,
        cautious_s=result.cautious_s if result else None,
        bound_s=result.bound_s if result else None,
        rules_s=dict(found.rules_s),
        time_limit_s=options.time_limit,
        planning_s=result.wall_s if result else None,
        load=os.getloadavg()[0],
    )


def drawn(number: int, options: argparse.Namespace) -> tuple[str, str]:
    """Model and pool of a draw; the models take turns."""
    dice = random.Random(f"{options.seed} {number}")
    model = options.models[number % len(options.models)]
    kinds = dice.sample(TYPES, dice.randint(2, len(TYPES)))
    return model, ",".join(f"{kind}={_nodes(dice)}" for kind in sorted(kinds))


def _nodes(dice: random.Random) -> str:
    """Nodes of one size mostly, of any sizes otherwise."""
    count = dice.choice((1, 2, 3, 4, 6, 8))
    size = dice.choice(NODE_SIZES)
    mixed = dice.random() < 1 / 3
    return "+".join(str(dice.choice(NODE_SIZES) if mixed else size) for _ in range(count)) + (
        "+1" if count == 1 else ""
    )


def _problem(model: str, pool: str, folder: Path) -> PipelineProblem:
    return build_problem(
        _profiles(folder, model),
        parse_pool(pool),
        DENSE.get(model, MOE_BATCH),
        options=PipelineOptions(allow_excess=True),
        allow_estimates=True,
        name=f"{model} on {pool}",
    )


@cache
def _profiles(folder: Path, model: str) -> Profiles:
    if model == MOE:
        return moe_profiles(read_profiles(folder, MOE_BASE), MOE_RULE)
    return read_profiles(folder, model)


def kept(path: Path | None, seed: int) -> dict[int, Row]:
    """Rows of earlier runs by number.

    Raises:
        InputError: they are of another seed.
    """
    if path is None or not path.exists():
        return {}
    rows = [Row(**json.loads(line)) for line in path.read_text().splitlines()]
    if any(row.seed != seed for row in rows):
        raise InputError(f"has rows of another seed than {seed}", where=str(path))
    return {row.number: row for row in rows}


def _keep(row: Row, path: Path | None) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def show(row: Row) -> None:
    """Prints a row."""
    head = f"{row.number:>4} {row.model:18}"
    if not row.exists:
        print(f"{head} no plan exists on {row.pool}", flush=True)
        return
    rule = row.best_rule
    ours = f"{row.ours_s:9.3f}" if row.ours_s is not None else f"{'no plan':>9}"
    best = f"{rule[1]:11.3f}" if rule else f"{'–':>11}"
    told = f"{100 * row.gain:6.1f} %" if row.gain is not None else f"{'–':>8}"
    name = rule[0] if rule else "no rule has a plan"
    name = name if row.counts else "nobody has a plan"
    print(f"{head} {ours} {best} {told}  {name}, {row.pool}", flush=True)


def summary(rows: Sequence[Row]) -> None:
    """Gains, wins and losses of dense models and of the mixture of experts."""
    for kind, own in _by_kind(rows).items():
        pairs = [(us_from_seconds(s), us_from_seconds(r)) for s, r in _times(own)]
        ratios = ratios_of(pairs)
        alone = sum(row.best_rule is None for row in own)
        late = sum(row.ours_s is None and row.best_rule is not None for row in own)
        if ratios is None:
            print(f"{kind}: no rule has a plan on any of {alone} clusters")
            continue
        print(
            f"{kind}, {len(own)} clusters: over the best rule "
            f"{100 * (1 / ratios.mean - 1):.1f} % in geometric mean, "
            f"at most {100 * (1 / ratios.best - 1):.1f} %, at least "
            f"{100 * (1 / ratios.worst - 1):.1f} %; shorter on {ratios.wins}, equal on "
            f"{ratios.ties}, longer on {ratios.losses + late} ({late} without a plan in time) of "
            f"{ratios.count + late}; no rule has a plan on {alone} more"
        )
        for name in dict.fromkeys(name for row in own for name in row.rules_s):
            _of_rule(name, own)


def _of_rule(name: str, rows: Sequence[Row]) -> None:
    """A line for one rule."""
    times = [(row.ours_s, row.rules_s[name]) for row in rows]
    both = [(us_from_seconds(a), us_from_seconds(b)) for a, b in times if a and b]
    ratios = ratios_of(both)
    none = sum(theirs is None for _, theirs in times)
    if ratios is None:
        print(f"  {name}: no plan on {none}")
        return
    print(
        f"  {name}: {100 * (1 / ratios.mean - 1):.1f} % in geometric mean, at most "
        f"{100 * (1 / ratios.best - 1):.1f} %, shorter on {ratios.wins} of {ratios.count}; "
        f"no plan on {none}"
    )


def _times(rows: Sequence[Row]) -> list[tuple[float, float]]:
    pairs = [(row.ours_s, row.best_rule) for row in rows]
    return [(ours, best[1]) for ours, best in pairs if ours is not None and best is not None]


def _by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    kinds = {
        "dense": [row for row in rows if row.model in DENSE],
        "mixture of experts": [row for row in rows if row.model not in DENSE],
        **{model: [row for row in rows if row.model == model] for model in DENSE},
    }
    return {kind: own for kind, own in kinds.items() if own}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Writes the sorted gains of each model as a picture.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        hint = "pip install 'arachne-opt[plot]'"
        raise MissingDependencyError("matplotlib is not installed", hint=hint) from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for model in dict.fromkeys(row.model for row in rows):
        gains = sorted(1 + r.gain for r in rows if r.model == model and r.gain is not None)
        shares = [(n + 0.5) / len(gains) for n in range(len(gains))]
        axes.plot(shares, gains, "-o", ms=3, label=f"{model} ({len(gains)} clusters)")
    for kind, gain in PUBLISHED.items():
        axes.axhline(1 + gain, color="grey", lw=0.8)
        axes.annotate(f"published at most, {kind}", (0, 1 + gain), fontsize="small")
    axes.axhline(1, color="black", lw=0.8)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("share of clusters")
    axes.set_ylabel("best rule's iteration time over ours")
    axes.set_title("Gain over the best of five rules, by closed form")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)
    print(f"picture: {path}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=Path, required=True, help="folder of profiles")
    parser.add_argument("--out", type=Path, help="keep rows here, and go on from them")
    parser.add_argument("--count", type=int, default=100, help="clusters that count")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processor-time", action="store_true", help="limits in processor seconds")
    parser.add_argument("--time-limit", type=float, default=15.0, help="seconds of our search")
    parser.add_argument("--rule-limit", type=float, default=30.0, help="seconds of a rule")
    parser.add_argument("--stop-after", type=float, default=0, help="begin no row after seconds")
    parser.add_argument("--plot", type=Path, help="write a picture here (extra plot)")
    return parser.parse_args()


if __name__ == "__main__":
    generated.run(main)
