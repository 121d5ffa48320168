"""What is done with the report of a run: kept, drawn, shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cli.output import emit_json, emit_table, write_whole
from arachne_opt.errors import StoreError
from arachne_opt.planning.service import Answer
from arachne_opt.units import format_seconds
from arachne_opt.workload import Workload

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.report import IterationReport, ReplayReport, TaskReport


def quarantine_left_out(report: ReplayReport, manifest: Path, workload: Workload) -> None:
    """Keeps clips whose files could not be used, so that the next run begins without them."""
    from arachne_opt.quarantine import Quarantined, add_to_quarantine, quarantine_path

    reasons = {clip: why for it in report.iterations for clip, why in it.left_out}
    if not reasons:
        return
    clips = {c.id: c for it in workload.iterations for b in it.micro_batches for c in b.clips}
    entries = [
        Quarantined(id=name, path=clips[name].latents or clips[name].path, reason=why)
        for name, why in reasons.items()
    ]
    file = quarantine_path(manifest)
    add_to_quarantine(file, entries)
    click.echo(f"{len(entries)} clips in quarantine: {file}", err=True)


def keep_runs_if_possible(store: PlanStore, report: ReplayReport) -> None:
    """Stores what a replay measured; a database that is lost by now costs the record alone."""
    try:
        keep_runs(store, report)
    except StoreError as error:
        click.echo(f"the training is done, but its runs are not stored: {error}", err=True)


def keep_runs(store: PlanStore, report: ReplayReport) -> None:
    """Stores what a replay measured: the runs, and their tasks as samples for cost models."""
    from arachne_opt.executor.report import measurements, run_records

    for run in run_records(report):
        store.add_run(run)
    store.add_measurements(measurements(report, skip_steps=1))


def write_trace(path: Path, answers: list[Answer], report: ReplayReport) -> None:
    """Writes the planned and the measured timeline of the last step."""
    from arachne_opt.report.trace import chrome_trace

    last = report.iterations[-1]
    ids = {task.micro_batch for task in last.tasks}
    same = [a.problem for a in answers if {c.id for c in a.problem.cascades} == ids]
    problem = max(same, key=lambda problem: problem.name == last.name)
    plan = CascadePlan(problem_name=problem.name, placements=tuple(_followed(problem, last)))
    name = "rehearsed" if report.emulated else "measured"
    trace = chrome_trace(problem, plan, _measured(problem, last), name)
    write_whole(path, json.dumps(trace))
    click.echo(f"trace written to {path}", err=True)


def _followed(problem: CascadeProblem, iteration: IterationReport) -> Iterator[Placement]:
    """The placements that a step followed; its plan may be a newer one than it began with."""
    for task, (c, t) in _tasks(problem, iteration):
        start, end = task.planned_start_us, task.planned_end_us
        yield Placement(
            cascade=c,
            task=t,
            devices=task.devices,
            start_us=start,
            end_us=end,
            recompute=task.recompute,
        )


def _tasks(
    problem: CascadeProblem, iteration: IterationReport
) -> Iterator[tuple[TaskReport, tuple[int, int]]]:
    """The tasks of a step with their indices in the problem."""
    index = {cascade.id: c for c, cascade in enumerate(problem.cascades)}
    for task in iteration.tasks:
        c = index[task.micro_batch]
        names = [planned.name for planned in problem.cascades[c].tasks]
        yield task, (c, names.index(task.task))


def _measured(problem: CascadeProblem, iteration: IterationReport) -> list[Placement]:
    """A measured placement per task and rank."""
    return [
        Placement(
            cascade=c,
            task=t,
            devices=(span.rank,),
            start_us=span.start_us,
            end_us=span.end_us,
        )
        for task, (c, t) in _tasks(problem, iteration)
        for span in task.ranks
    ]


def show_report(report: ReplayReport, form: str) -> None:
    """Prints planned beside measured."""
    if form == "json":
        from arachne_opt.executor.report import report_to_json

        value = report_to_json(report)
        emit_json("train", {k: v for k, v in value.items() if k != "format"})
        return
    rows = [
        [
            it.step,
            it.name,
            f"{it.loss:.6f}",
            format_seconds(it.planned_us),
            format_seconds(it.measured_us),
            f"{it.fidelity:.2f}",
            format_seconds(it.sync_us),
            format_seconds(it.optimizer_us),
        ]
        for it in report.iterations
    ]
    head = ["step", "iteration", "loss", "planned", "measured", "ratio", "gradients", "optimizer"]
    if report.emulated:
        click.echo("emulated: tasks slept for their planned times, and nothing was trained")
    emit_table(head, rows)
    left_out = {clip: why for it in report.iterations for clip, why in it.left_out}
    for clip, why in left_out.items():
        click.echo(f"left out: clip {clip}: {why}")
    if left_out:
        click.echo(f"{len(left_out)} clips were left out, their files cannot be used")
    if report.dropped:
        click.echo(f"{len(report.dropped)} clips of the manifest were not trained; see the report")
