"""What planning with a quantile changes when tasks take longer or shorter than predicted.

    python benchmarks/learned_risk.py --durations DATA/cascades/durations_hunyuan_720p.json

A model is learned from published durations of HunyuanVideo at 720p. Iterations of 720p clips are
planned with its middle predictions and with quantiles of them; then true durations are drawn from
the model's error: each task's prediction times exp(spread * score), with scores that its
predictions had on held-out shapes. A plan is replayed in its own order: a task starts when its
devices and its inputs are free. All plans meet the same draws; a draw belongs to a task at a
degree. What is called planned is the makespan that the plan promises by its own prices.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from generated import checked, limits_of, machine, run

from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.learned.cascade import LearnedCostModel, fit_cascade
from arachne_opt.costs.learned.cascade_features import TaskPoint, task_samples
from arachne_opt.costs.learned.samples import Floats
from arachne_opt.importers.durations import read_durations
from arachne_opt.models import model_spec
from arachne_opt.solvers.base import Limits
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

# Clips and frames of micro-batches, as in the published workload.
_SHAPES = (
    (1, 69),
    (1, 93),
    (1, 113),
    (1, 129),
    (2, 45),
    (2, 57),
    (2, 65),
    (3, 41),
    (5, 21),
    (6, 9),
)
_DEGREES = (2, 4, 6, 8, 12)

Draws = dict[tuple[int, int, int], Floats]


def main() -> None:
    """Prints a row per quantile."""
    options = _options()
    cluster = read_cluster(f"H100-80:8x{options.devices // 8}")
    spec = model_spec("hunyuanvideo-13b")
    rows = read_durations(options.durations, device_type="H100-80")
    learned = fit_cascade("published", spec, rows)
    analytic = analytic_for_cluster(spec, cluster)
    iterations = _iterations(options.iterations, options.devices // 4, options.seed)
    print(f"{len(iterations)} iterations on {options.devices} devices, {options.draws} draws each;")
    print(f"{options.time_limit:g} s per plan; {machine(options)}\n")
    print("quantile  planned s  mean realised s  90 % realised s  realised over planned  over by")
    middle = learned.for_cluster(analytic, None)
    draws = [_drawn(middle, it, cluster, options) for it in iterations]
    for q in (None, *options.quantiles):
        model = learned.for_cluster(analytic, q)
        _show(q, *_played(model, iterations, cluster, draws, limits_of(options)))


def _played(
    model: LearnedCostModel,
    iterations: Sequence[Iteration],
    cluster: Cluster,
    draws: Sequence[Draws],
    limits: Limits,
) -> tuple[Floats, Floats]:
    """Promised makespans, and [iterations, draws] realised ones."""
    promised, realised = [], []
    for iteration, drawn in zip(iterations, draws, strict=True):
        problem = build_problem(iteration, cluster, model, degrees=_DEGREES)
        plan = checked(problem, "portfolio", limits).plan
        assert plan is not None  # a list schedule always finds one
        promised.append(plan.makespan_us / 1e6)
        realised.append(_replayed(problem, plan, drawn))
    return np.array(promised), np.array(realised)


def _drawn(
    model: LearnedCostModel, iteration: Iteration, cluster: Cluster, options: argparse.Namespace
) -> Draws:
    """True seconds of each task at each degree, before any penalty of its place."""
    kind = next(iter(cluster.device_types.values()))
    number = int(iteration.name.removeprefix("it"))
    draw, found = np.random.default_rng([options.seed, number]), Draws()
    for c, batch in enumerate(iteration.micro_batches):
        for t, task in enumerate(model.task_names):
            learned = model.tasks[task]
            points = [
                TaskPoint(
                    clips=batch.size, shape=batch.shape, text_tokens=0, degree=k, device_type=kind
                )
                for k in _DEGREES
            ]
            said = learned.seconds.predict(task_samples(model.spec, task, points, learned.degrees))
            for k, value, spread, place in zip(
                _DEGREES, said.values, said.spread, said.places, strict=True
            ):
                scores = learned.seconds.scores.get(place, learned.seconds.scores["range"])
                z = draw.choice(np.array(scores.values), size=options.draws)
                found[c, t, k] = value * np.exp(spread * z)
    return found


def _replayed(problem: CascadeProblem, plan: CascadePlan, drawn: Draws) -> Floats:
    """Makespans of a plan with drawn durations, its order and groups kept."""
    count = len(next(iter(drawn.values())))
    free = {d: np.zeros(count) for d in range(problem.cluster.device_count)}
    ends: dict[tuple[int, int], Floats] = {}
    for p in plan.placements:
        task = problem.cascades[p.cascade].tasks[p.task]
        waits = [free[d] for d in p.devices]
        waits += [ends[p.cascade, before] for before in task.predecessors]
        seconds = drawn[p.cascade, p.task, p.degree]
        option = next(o for o in task.options if o.degree == p.degree)
        penalty = (p.end_us - p.start_us) / option.duration_us
        end = np.max(waits, axis=0) + seconds * penalty
        ends[p.cascade, p.task] = end
        for d in p.devices:
            free[d] = end
    makespans: Floats = np.max(list(ends.values()), axis=0)
    return makespans


def _show(q: float | None, promised: Floats, realised: Floats) -> None:
    over = realised > promised[:, None]
    print(
        f"{'middle' if q is None else f'{q:g}':8}  {promised.sum():9.2f}  "
        f"{realised.mean(axis=1).sum():15.2f}  "
        f"{np.percentile(realised, 90, axis=1).sum():15.2f}  "
        f"{100 * over.mean():19.1f} %  "
        f"{100 * (realised.mean(axis=1) / promised - 1).mean():+5.1f} %"
    )


def _iterations(count: int, batches: int, seed: int) -> tuple[Iteration, ...]:
    draw = np.random.default_rng(seed)
    found = []
    for number in range(count):
        picks = draw.integers(len(_SHAPES), size=batches)
        members = tuple(_batch(i, *_SHAPES[pick]) for i, pick in enumerate(picks))
        found.append(Iteration(name=f"it{number:02}", micro_batches=members))
    return tuple(found)


def _batch(number: int, clips: int, frames: int) -> MicroBatch:
    shape = Shape(frames=frames, height=720, width=1280)
    members = tuple(Clip(id=f"{number}-{i}", shape=shape) for i in range(clips))
    return MicroBatch(id=f"b{number}", shape=shape, clips=members)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--durations", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=32)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--quantiles", type=float, nargs="*", default=[0.6, 0.75, 0.9])
    parser.add_argument("--time-limit", type=float, default=3.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
