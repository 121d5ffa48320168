"""How much shorter iterations become than under static frameworks, by scale and mixture.

    python benchmarks/headline.py --quick
    python benchmarks/headline.py --plot gain.png

A simulation: generated iterations, our plans and theirs under the same costs and penalties, all
checked. Static frameworks give every micro-batch the same degree: bucketed data parallelism (the
smallest degree that holds them all) and the best uniform degree of each iteration. For honesty
the best of the dynamic rules (FlexSP's greedy one, KnapFormer's bags, Megatron's dynamic context
parallelism) stands beside them. A reduction is 1 - ours / theirs over the sum of the iterations;
an iteration is a makespan and the tail that follows it, gradient synchronisation and optimizer,
which no placement shortens. The gap is that of our makespans to their proven bounds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from generated import checked, conditions, generated_problems, limits_of, problem_options, run

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import MissingDependencyError
from arachne_opt.solvers.base import Limits
from arachne_opt.units import format_seconds

STATIC = {"bucketed-dp": "bucketed data parallelism", "best-uniform": "best uniform degree"}
DYNAMIC = ("flex-sp", "knapformer", "dynamic-cp")
SIZES = (16, 32, 64, 128, 256, 512, 1024)
PUBLISHED_REDUCTION = 0.65


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Sums over the iterations of one mixture at one size.

    Args:
        spread: standard deviation over mean of the device time of micro-batches.
        ours_us: our makespans; the tails come on top, for us and for them.
        tail_us: tails of the iterations.
        theirs_us: by rule, None where it has no plan for some iteration.
    """

    mixture: str
    devices: int
    cascades: int
    spread: float
    ours_us: int
    bound_us: int
    tail_us: int
    theirs_us: dict[str, int | None]

    def reduction(self, rule: str) -> float | None:
        """Share of a rule's time that our plans save."""
        theirs_us = self.theirs_us[rule]
        return None if theirs_us is None else self.saved(theirs_us)

    def saved(self, theirs_us: int) -> float:
        """Share of iterations with such makespans that ours save, tails included."""
        return 1 - (self.ours_us + self.tail_us) / (theirs_us + self.tail_us)

    @property
    def best_dynamic_us(self) -> int | None:
        """The shortest time of a dynamic rule."""
        found = [us for rule in DYNAMIC if (us := self.theirs_us[rule]) is not None]
        return min(found, default=None)


def main() -> None:
    """Runs the comparison, prints the table and draws the picture."""
    options = _options()
    limits = limits_of(options)
    print(conditions(options))
    print(f"{limits.time_limit_s:g} s for each of {options.iterations} iterations a row")
    print(
        f"{'mixture':8} {'GPUs':>5} batches  spread {'ours':>9}    gap {'bucketed':>9} reduced "
        f"{'uniform':>9} reduced {'dynamic':>9} reduced"
    )
    rows = []
    for mixture in options.mixtures:
        for devices in options.sizes:
            problems = generated_problems(mixture, devices, options.iterations, options)
            rows.append(compare(mixture, problems, limits))
            _print(rows[-1])
    for rule, words in STATIC.items():
        found = [(r, row) for row in rows if (r := row.reduction(rule)) is not None]
        if found:
            most, row = max(found, key=lambda pair: pair[0])
            print(f"{words}: up to {100 * most:.1f} % less ({row.mixture}, {row.devices} GPUs)")
    if options.plot:
        draw(rows, options.plot)


def compare(mixture: str, problems: Sequence[CascadeProblem], limits: Limits) -> Row:
    """Our plans and those of all rules for the iterations of a row."""
    ours_us = bound_us = 0
    theirs: dict[str, list[int | None]] = {rule: [] for rule in (*STATIC, *DYNAMIC)}
    for problem in problems:
        result = checked(problem, "portfolio", limits)
        assert result.objective_us is not None
        ours_us += result.objective_us
        bound_us += result.bound_us
        for rule, times in theirs.items():
            times.append(checked(problem, rule, limits).objective_us)
    return Row(
        mixture=mixture,
        devices=problems[0].cluster.device_count,
        cascades=len(problems[0].cascades),
        spread=_spread(problems),
        ours_us=ours_us,
        bound_us=bound_us,
        tail_us=sum(problem.tail_us for problem in problems),
        theirs_us={rule: _sum(times) for rule, times in theirs.items()},
    )


def draw(rows: Sequence[Row], path: Path) -> None:
    """Writes the reductions over the number of GPUs as a picture.

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
    for number, mixture in enumerate(dict.fromkeys(row.mixture for row in rows)):
        for (rule, words), style in zip(STATIC.items(), ("-o", "--s"), strict=True):
            found = [
                (row.devices, 100 * r)
                for row in rows
                if row.mixture == mixture and (r := row.reduction(rule)) is not None
            ]
            axes.plot(
                *zip(*found, strict=True), style, color=f"C{number}", label=f"{mixture}, {words}"
            )
    axes.axhline(100 * PUBLISHED_REDUCTION, color="grey", lw=0.8, label="published: up to 65 %")
    axes.set_xscale("log", base=2)
    axes.set_xticks([row.devices for row in rows], [str(row.devices) for row in rows])
    axes.set_xlabel("GPUs")
    axes.set_ylabel("reduction of iteration time, %")
    axes.set_title("Simulated iteration time against static frameworks")
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    figure.savefig(path, dpi=150)
    print(f"picture: {path}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    problem_options(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of GPUs")
    parser.add_argument("--mixtures", nargs="+", default=("720p", "mixed"))
    parser.add_argument("--iterations", type=int, default=3, help="of each mixture and size")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds an iteration")
    parser.add_argument("--plot", type=Path, help="write a picture here (extra plot)")
    parser.add_argument("--quick", action="store_true", help="16 to 64 GPUs, one iteration, 3 s")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.iterations, options.time_limit = (16, 32, 64), 1, 3.0
    return options


def _spread(problems: Sequence[CascadeProblem]) -> float:
    work = [
        sum(min(option.area_us for option in task.options) for task in cascade.tasks)
        for problem in problems
        for cascade in problem.cascades
    ]
    return statistics.pstdev(work) / statistics.mean(work)


def _sum(times: Sequence[int | None]) -> int | None:
    found = [us for us in times if us is not None]
    return sum(found) if len(found) == len(times) else None


def _print(row: Row) -> None:
    cells = ""
    for theirs_us in (*(row.theirs_us[rule] for rule in STATIC), row.best_dynamic_us):
        time = "–" if theirs_us is None else format_seconds(theirs_us + row.tail_us)
        saved = "–" if theirs_us is None else f"{100 * row.saved(theirs_us):.1f} %"
        cells += f" {time:>9} {saved:>7}"
    gap = 100 * (row.ours_us / row.bound_us - 1)
    print(
        f"{row.mixture:8} {row.devices:5} {row.cascades:7} {row.spread:7.2f} "
        f"{format_seconds(row.ours_us + row.tail_us):>9} {gap:4.1f} %{cells}",
        flush=True,
    )


if __name__ == "__main__":
    run(main)
