"""What is done with the report of a run under a pipeline plan: kept, drawn, shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.output import emit_json, emit_table, write_whole
from arachne_opt.errors import StoreError
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds

if TYPE_CHECKING:
    from arachne_opt.executor.pipeline.job import PipelineJob
    from arachne_opt.executor.pipeline.report import PipelineReport
    from arachne_opt.records import Measurement
    from arachne_opt.report.pipeline_measured import Measured


def keep_runs(report: PipelineReport, job: PipelineJob, db_url: str | None) -> None:
    """Stores runs and measurements; a database that is lost by now costs the record alone."""
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.pipeline.report import run_records

    try:
        with PlanStore.open(database_url(db_url)) as store:
            for record in run_records(report):
                store.add_run(record)
            store.add_measurements(measurements(report, job))
    except StoreError as error:
        click.echo(f"the training is done, but its runs are not stored: {error}", err=True)


def measurements(report: PipelineReport, job: PipelineJob) -> tuple[Measurement, ...]:
    """Mean time of a forward and a backward of each stage in the last step; none of a rehearsal."""
    from arachne_opt.records import Measurement

    if report.emulated or len(report.steps) < 2:  # the first step warms up
        return ()
    if job.chunks > 1:  # spans are of runs of rows, not of stages
        return ()
    assert job.source is not None  # it was a training
    times: dict[tuple[int, int, int, bool], list[int]] = {}
    for span in report.spans:
        member = job.layout.members[span.rank]
        if span.phase == "compute" and member.tp_index == 0:
            place = member.pipeline, member.stage, member.replica, span.forward
            times.setdefault(place, []).append(span.end_us - span.start_us)
    rows = []
    for (p, i, n, forward), found in sorted(times.items()):
        stage = job.plan.pipelines[p].stages[i]
        kind, work = stage.replicas[n].kind, "forward" if forward else "backward"
        rows.append(
            Measurement(
                model=report.model,
                task=f"{work} of rows {stage.first}-{stage.end - 1}",
                device_type=kind.device_type,
                degree=kind.tp,
                batch=len(job.layout.samples(p, i, n)),
                frames=1,
                height=1,
                width=1,
                text_tokens=job.source.length,
                duration_us=max(1, round(sum(found) / len(found))),
                memory_bytes=0,
                source="replay",
                recompute=stage.recompute,
            )
        )
    return tuple(rows)


def write_trace(path: Path, job: PipelineJob, report: PipelineReport) -> None:
    """Writes the planned timeline beside the measured one of the last step."""
    from arachne_opt.report.pipeline_measured import measured_timeline, scaled
    from arachne_opt.report.pipeline_timeline import planned_timeline
    from arachne_opt.report.trace import trace_of

    simulation = job.simulate(keep_tasks=True)
    planned = scaled(planned_timeline(job.problem, job.plan, simulation), 1 / report.speed)
    measured = measured_timeline(job.problem, job.plan, _measured(job, report))
    about = {"plan": job.plan_id, "model": report.model, "emulated": report.emulated}
    write_whole(path, json.dumps(trace_of([planned, measured], about)))
    click.echo(f"trace written to {path}", err=True)


def _measured(job: PipelineJob, report: PipelineReport) -> Iterator[Measured]:
    from arachne_opt.report.pipeline_measured import Measured

    for span in report.spans:
        m = job.layout.members[span.rank]
        yield Measured(
            place=(m.pipeline, m.stage, m.replica, m.tp_index),
            phase=span.phase,
            forward=span.forward,
            microbatch=span.microbatch,
            start_us=span.start_us,
            end_us=span.end_us,
        )


def show_report(report: PipelineReport, form: str) -> None:
    """Prints planned beside measured, and what the stages of the last step did."""
    if form == "json":
        from arachne_opt.executor.pipeline.report import report_to_json

        value = report_to_json(report)
        emit_json("train", {k: v for k, v in value.items() if k not in ("format", "spans")})
        return
    for note in report.notes:
        click.echo(f"note: {note}", err=True)
    if report.emulated:
        click.echo("emulated: ranks slept for their planned times, and nothing was trained")
    head = ["step", "loss", "norm", "planned", "measured", "ratio", "tokens/s"]
    rows = [
        [
            step.step,
            f"{step.loss:.6f}",
            f"{step.norm:.4f}",
            format_seconds(step.planned_us),
            format_seconds(step.measured_us),
            f"{step.fidelity:.2f}",
            f"{step.tokens / max(1, step.measured_us) * 1e6:.0f}",
        ]
        for step in report.steps
    ]
    emit_table(head, rows)
    click.echo("the last step, mean over the ranks of each stage")
    head = ["pipeline", "stage", "compute", "send", "wait", "gradients", "optimizer"]
    times = ("compute_us", "send_us", "wait_us", "sync_us", "update_us")
    emit_table(
        head,
        [
            [s.pipeline, s.stage, *(format_seconds(getattr(s, name)) for name in times)]
            for s in report.steps[-1].stages  # the last one is always watched
        ],
    )
