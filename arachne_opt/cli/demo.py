"""``arachne demo``: the whole road once, on this machine."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.output import emit_table, percent
from arachne_opt.cli.profile import distinct_shapes, measure, show_measurements, write_table
from arachne_opt.cli.replays import replay, replay_iterations
from arachne_opt.cli.run_report import keep_runs, show_report, write_trace
from arachne_opt.cli.session import Session, show_answers
from arachne_opt.cli.sources import GroupingOptions, build_problems, load_costs, load_workload
from arachne_opt.cluster_file import read_cluster
from arachne_opt.planning.service import DEFAULT_SOLVER, Answer, PlanService
from arachne_opt.solvers.base import Limits
from arachne_opt.units import format_seconds
from arachne_opt.workload import Workload

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.job import ReplayJob
    from arachne_opt.executor.report import ReplayReport

MEASURE_REPEATS = 5
COMPARE_ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one demo works on."""

    folder: Path
    model: str
    ranks: int
    clips: int
    seed: int

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees that the ranks allow."""
        return tuple(k for k in (1, 2, 4, 8) if k <= self.ranks)


@click.command()
@click.option(
    "--out",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("arachne-demo"),
    show_default=True,
    help="Folder for all files of the demo.",
)
@click.option("--model", default="demo-wan", show_default=True, help="Model preset, such as toy.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Processes that train.",
)
@click.option(
    "--clips", type=click.IntRange(min=4), default=32, show_default=True, help="Clips to generate."
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of clips, model and search."
)
def demo(folder: Path, model: str, ranks: int, clips: int, seed: int) -> None:
    """Generate clips, measure a tiny model, plan, store, train, and compare with a static plan.

    Example: arachne demo
    """
    from arachne_opt.db.store import PlanStore

    begin_s = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    scene = Scene(folder=folder, model=model, ranks=ranks, clips=clips, seed=seed)
    workload = _generate(scene)
    with PlanStore.open(str(folder / "plans.db")) as store:
        _measure(scene, workload, store)
        answers, static = _plan(scene, workload, store)
        _train(scene, workload, answers, store)
        _compare(scene, workload, answers, static)
    click.echo(f"\ndone in {time.monotonic() - begin_s:.0f} s; everything is in {folder}/")


def _generate(scene: Scene) -> Workload:
    from arachne_opt.manifest import write_manifest
    from arachne_opt.models import model_spec
    from arachne_opt.workload_generator import generate_clips

    _headline("1  clips of mixed shape")
    manifest = scene.folder / "clips.csv"
    write_manifest(generate_clips("demo", count=scene.clips, seed=scene.seed), manifest)
    options = GroupingOptions(shuffle_seed=scene.seed)
    workload = load_workload(manifest, options, model_spec(scene.model))
    for iteration in workload.iterations:
        labels = "  ".join(batch.label for batch in iteration.micro_batches)
        click.echo(f"{iteration.name}: {labels}")
    return workload


def _measure(scene: Scene, workload: Workload, store: PlanStore) -> None:
    from arachne_opt.executor.measure import MeasureJob
    from arachne_opt.executor.model_config import ModelChoice

    _headline(f"2  measured times of {scene.model} on {scene.ranks} processes")
    job = MeasureJob(
        model=ModelChoice(preset=scene.model),
        batches=distinct_shapes(workload),
        degrees=scene.degrees,
        repeats=MEASURE_REPEATS,
    )
    rows = measure(job, scene.ranks)
    store.add_measurements(rows)
    write_table(rows, scene.model, scene.folder / "costs.json")
    show_measurements(rows)


def _plan(scene: Scene, workload: Workload, store: PlanStore) -> tuple[list[Answer], list[Answer]]:
    """A plan per iteration, and the best plan with one degree for all."""
    from arachne_opt.solvers.baselines.uniform import best_uniform

    _headline("3  plans: ours, and the best with one degree for all tasks")
    cluster = read_cluster(f"CPU:{scene.ranks}")
    costs = load_costs(scene.folder / "costs.json", None, cluster)
    problems = build_problems(workload, cluster, costs, None)
    service, limits = PlanService(store), Limits(time_limit_s=3.0, seed=scene.seed)
    session = Session(limits=limits, solver=DEFAULT_SOLVER, use_cache=True)
    session.run(service, problems, None)
    if session.interrupted:
        raise click.Abort
    static = [service.keep(problem, best_uniform(problem, limits), limits) for problem in problems]
    show_answers([*session.answers, *static], "table")
    return session.answers, static


def _train(scene: Scene, workload: Workload, answers: list[Answer], store: PlanStore) -> None:
    _headline("4  training under the plans")
    job = _job(scene, workload, answers)
    report = replay(job)
    keep_runs(store, report)
    show_report(report, "table")
    write_trace(scene.folder / "trace.json", answers, report)


def _compare(scene: Scene, workload: Workload, answers: list[Answer], static: list[Answer]) -> None:
    """Both plans in one run and in turn, so that a slow moment of the machine hits both."""
    _headline("5  measured side by side: planned and static, in turn, in one run")
    ours, theirs = _job(scene, workload, answers), _job(scene, workload, static)
    pairs = zip(ours.iterations, theirs.iterations, strict=True)
    both = replace(
        ours,
        iterations=tuple(iteration for pair in pairs for iteration in pair),
        epochs=1 + COMPARE_ROUNDS,
        learning_rate=0.0,
    )
    report = replay(both)
    _show_comparison(report, workload)


def _show_comparison(report: ReplayReport, workload: Workload) -> None:
    count = len(workload.iterations)
    measured: list[list[int]] = [[] for _ in range(2 * count)]
    planned = [0] * (2 * count)
    # The first round warms up allocators and groups.
    for it in report.iterations[2 * count :]:
        measured[it.step % (2 * count)].append(it.measured_us)
        planned[it.step % (2 * count)] = it.planned_us
    medians = [round(statistics.median(times)) for times in measured]
    rows: list[list[str | None]] = []
    for i, iteration in enumerate(workload.iterations):
        a, b = 2 * i, 2 * i + 1
        times = [planned[a], medians[a], planned[b], medians[b]]
        saved = percent(1 - medians[a] / medians[b])
        rows.append([iteration.name, *map(format_seconds, times), saved])
    ours, theirs = sum(medians[0::2]), sum(medians[1::2])
    total = [format_seconds(us) for us in (sum(planned[0::2]), ours, sum(planned[1::2]), theirs)]
    rows.append(["all", *total, percent(1 - ours / theirs)])
    head = ["iteration", "ours planned", "measured", "static planned", "measured", "saved"]
    emit_table(head, rows)


def _job(scene: Scene, workload: Workload, answers: list[Answer]) -> ReplayJob:
    from arachne_opt.executor.job import ReplayJob
    from arachne_opt.executor.model_config import ModelChoice

    iterations = replay_iterations(workload.iterations, answers)
    return ReplayJob(model=ModelChoice(preset=scene.model), iterations=iterations, seed=scene.seed)


def _headline(text: str) -> None:
    click.echo(f"\n== {text}")
