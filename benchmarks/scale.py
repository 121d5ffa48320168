"""Gap, time and memory from 128 to 1,024 GPUs.

    python benchmarks/scale.py --quick
    python benchmarks/scale.py --durations durations_hunyuan_720p.json

Every solve runs in a process of its own, so that the peak of its memory is its own. The time to a
fixed gap is read from the improvements that the search reports; per micro-batch it should not
grow.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from generated import checked, conditions, generated_problems, limits_of, problem_options, run

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Progress, Result

MOMENTS_S = (2.0, 5.0, 10.0, 30.0)
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One solve: gap at moments and in the end, when the asked gap was reached, memory."""

    gaps: tuple[float | None, ...]
    final_gap: float
    reached_s: float | None
    wall_s: float
    peak_bytes: int


def main() -> None:
    """Solves every size and prints a row for each."""
    options = _options()
    print(conditions(options))
    print(f"mixture {options.mixture}, {options.iterations} iterations a row, means; the last")
    print(f"columns: iterations that reached {100 * options.gap:g} %, time to it, per micro-batch")
    moments = [m for m in MOMENTS_S if m <= options.time_limit]
    heads = "".join(f"{f'gap {m:g} s':>9}" for m in moments)
    print(f" GPUs batches{heads}  in the end  worst   peak memory  reached    after  each")
    context = multiprocessing.get_context("spawn")
    for devices in options.sizes:
        problems = generated_problems(options.mixture, devices, options.iterations, options)
        outcomes = []
        for problem in problems:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                limits = limits_of(options)
                work = pool.submit(solve_alone, problem, limits, moments, options.gap)
                outcomes.append(work.result())
        _print(devices, len(problems[0].cascades), outcomes)


def solve_alone(
    problem: CascadeProblem, limits: Limits, moments: Sequence[float], gap: float
) -> Outcome:
    """Solves a problem in this process and says what it took."""
    result = checked(problem, "portfolio", limits)
    assert result.gap is not None
    return Outcome(
        gaps=tuple(_gap_at(result, moment) for moment in moments),
        final_gap=result.gap,
        reached_s=next((e.elapsed_s for e in result.history if _gap(e) <= gap), None),
        wall_s=result.wall_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    problem_options(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=(128, 256, 512, 1024))
    parser.add_argument("--mixture", default="720p")
    parser.add_argument("--iterations", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds an iteration")
    parser.add_argument("--gap", type=float, default=0.1, help="gap whose time is measured")
    parser.add_argument("--quick", action="store_true", help="128 and 256 GPUs, once, 10 s")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.iterations, options.time_limit = (128, 256), 1, 10.0
    return options


def _gap(event: Progress) -> float:
    if event.objective_us is None or event.bound_us <= 0:
        return float("inf")
    return event.objective_us / event.bound_us - 1


def _gap_at(result: Result, elapsed_s: float) -> float | None:
    gaps = [_gap(e) for e in result.history if e.elapsed_s <= elapsed_s]
    return gaps[-1] if gaps and gaps[-1] < float("inf") else None


def _print(devices: int, cascades: int, outcomes: Sequence[Outcome]) -> None:
    cells = ""
    for at in zip(*(outcome.gaps for outcome in outcomes), strict=True):
        known = [gap for gap in at if gap is not None]
        cells += f"{100 * statistics.mean(known):7.1f} %" if len(known) == len(at) else f"{'–':>9}"
    final = [outcome.final_gap for outcome in outcomes]
    peak = max(outcome.peak_bytes for outcome in outcomes) / 2**20
    times = [outcome.reached_s for outcome in outcomes if outcome.reached_s is not None]
    after = f"{statistics.mean(times):6.2f} s" if times else f"{'–':>8}"
    each = f"{1000 * statistics.mean(times) / cascades:.0f} ms" if times else "–"
    print(
        f"{devices:5} {cascades:7}{cells} {100 * statistics.mean(final):9.1f} % "
        f"{100 * max(final):4.1f} % {peak:9.0f} MiB "
        f"{len(times):4} of {len(outcomes)} {after} {each:>7}",
        flush=True,
    )


if __name__ == "__main__":
    run(main)
