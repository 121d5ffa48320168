"""``arachne bench``: comparisons with peers on public instances."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cli.bench_pipelines import pipelines
from arachne_opt.cli.bench_tables import show_rows
from arachne_opt.cli.options import OUTPUT, PATH, format_option, limit_options, limits_of
from arachne_opt.cli.output import write_whole
from arachne_opt.cli.progress import Interrupts, ProgressLine, catch_interrupts, search_text
from arachne_opt.cli.workers import workers_of, workers_options
from arachne_opt.errors import INTERRUPTED, OUTSIDE_GAP
from arachne_opt.importers.instances import (
    PublishedInstance,
    read_instances,
    read_instances_sparingly,
)
from arachne_opt.planning.service import DEFAULT_SOLVER
from arachne_opt.solvers.base import Limits, Progress

if TYPE_CHECKING:
    from arachne_opt.bench.cascades import Row
    from arachne_opt.learning.jobs import Workers


@click.group()
def bench() -> None:
    """Compare our plans with those of peers on public instances."""


bench.add_command(pipelines)


@bench.command()
@click.option("--data", type=PATH, required=True, help="Folder of instances, or one file.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only instances with such an id.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No instances with such an id.")
@click.option("--solver", default=DEFAULT_SOLVER, show_default=True, help="Method by name.")
@click.option("--out", type=OUTPUT, help="Write our plans to this file, one JSON line each.")
@workers_options
@limit_options
@format_option
def cascades(**options: Any) -> int:  # noqa: ANN401
    """Plan public cascade instances; print ratios to peers, gaps, and the gap over time.

    Peers' rules pay the same penalties; they may use estimated candidates, our solver only
    where a task has no others. Published figures of FlexSP and Megatron-LM paid no penalty.

    \b
    Example:
      arachne bench cascades --data DATA/cascades --time-limit 20 --out plans.jsonl
    """
    chosen = {"only": options["only"], "exclude": options["exclude"]}
    instances = read_instances_sparingly(options["data"], **chosen)
    full = read_instances(options["data"], allow_estimates=True, **chosen)
    limits = limits_of(options)
    rows: list[Row] = []
    try:
        with catch_interrupts() as interrupts:
            pairs = [(i, whole.problem) for i, whole in zip(instances, full, strict=True)]
            _run(pairs, limits, options["solver"], workers_of(options), interrupts, rows)
    finally:
        if options["out"]:
            _write_plans(options["out"], rows)
        if rows:
            show_rows(rows, limits, options["form"])
    if len(rows) < len(instances):
        click.echo(f"interrupted after {len(rows)} of {len(instances)} instances", err=True)
        return INTERRUPTED
    asked = options["gap"]
    outside = asked is not None and any((row.result.gap or 0.0) > asked for row in rows)
    return OUTSIDE_GAP if outside else 0


def _run(
    instances: Sequence[tuple[PublishedInstance, CascadeProblem]],
    limits: Limits,
    solver: str,
    workers: Workers,
    interrupts: Interrupts,
    rows: list[Row],
) -> None:
    """Appends a row per instance; ends after the current one on Ctrl-C."""
    from arachne_opt.bench.cascades import compare

    if not workers.alone:
        _run_many(instances, limits, solver, workers, interrupts, rows)
        return
    line = ProgressLine()
    for number, (instance, full) in enumerate(instances, start=1):
        head = f"[{number}/{len(instances)}] {instance.id}"
        line.show(head, force=True)

        def show(progress: Progress, head: str = head) -> None:
            line.show(search_text(progress, head))

        work = functools.partial(
            compare,
            instance,
            limits,
            solver=solver,
            full=full,
            on_progress=show,
            should_stop=interrupts.pressed,
        )
        row = interrupts.run(work)
        line.clear()
        if interrupts.pressed():
            return  # its search was cut short: no fair figure
        rows.append(row)


def _run_many(
    instances: Sequence[tuple[PublishedInstance, CascadeProblem]],
    limits: Limits,
    solver: str,
    workers: Workers,
    interrupts: Interrupts,
    rows: list[Row],
) -> None:
    """The same on several instances at a time; they share the cores of their machines."""
    from arachne_opt.bench.cascades import compare_pair
    from arachne_opt.learning.jobs import run_many

    line, found = ProgressLine(), dict[int, "Row"]()
    work = functools.partial(compare_pair, limits, solver)
    for position, row in run_many(work, instances, workers, should_stop=interrupts.pressed):
        found[position] = row
        line.show(f"[{len(found)}/{len(instances)}] {row.instance.id}")
    line.clear()
    rows += [found[position] for position in sorted(found)]


def _write_plans(path: Path, rows: Sequence[Row]) -> None:
    lines = [json.dumps(row.plan.to_json(row.instance.problem)) + "\n" for row in rows]
    write_whole(path, "".join(lines))
