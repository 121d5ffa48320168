"""``arachne train``: replay plans with torch and train a model."""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cascade.plan import Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cli.options import (
    FILE,
    OUTPUT,
    database_option,
    format_option,
    group_option,
    limit_options,
    limits_of,
    workload_options,
)
from arachne_opt.cli.output import emit_json, emit_table, write_whole
from arachne_opt.cli.progress import ProgressLine
from arachne_opt.cli.solve import Session
from arachne_opt.cli.sources import (
    GroupingOptions,
    build_problems,
    load_costs,
    load_workload,
    parse_degrees,
)
from arachne_opt.cluster_file import read_cluster
from arachne_opt.errors import INTERRUPTED, InputError
from arachne_opt.models import model_spec
from arachne_opt.service import DEFAULT_SOLVER, Answer, PlanService, plan_of_record
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds
from arachne_opt.workload import Workload

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.job import ReplayIteration, ReplayJob
    from arachne_opt.executor.report import IterationReport, ReplayReport


@click.command()
@click.option("--workload", "manifest", type=FILE, required=True, help="Manifest of clips.")
@workload_options
@group_option
@click.option("--cluster", required=True, help="Cluster file or shorthand; one rank per device.")
@click.option("--model", required=True, help="Model preset, such as tiny-wan or toy.")
@click.option("--checkpoint", default="", help="Local folder in diffusers' layout instead.")
@click.option("--costs", "cost_table", type=FILE, help="Measured costs; else analytic ones.")
@click.option("--degrees", help="Degrees to choose from, such as 1,2,4.")
@click.option("--plan", "plan_ids", multiple=True, help="Stored plan, one per iteration in order.")
@click.option("--weights", type=click.Choice(["clip", "token"]), default="clip", show_default=True)
@click.option("--lr", type=click.FloatRange(min=0), default=1e-4, show_default=True)
@click.option("--epochs", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Per rank; 0 shares cores.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto")
@click.option("--save", default="", help="File for the parameters at the end.")
@click.option("--report", type=OUTPUT, help="Write the full report to this file.")
@click.option("--trace", type=OUTPUT, help="Write a trace of the last iteration, both timelines.")
@click.option("--dry-run", is_flag=True, help="Print the torchrun command and leave.")
@click.option("--job", "job_path", type=OUTPUT, help="Write the job file here (with --dry-run).")
@limit_options
@database_option
@format_option
def train(**options: Any) -> int:  # noqa: ANN401
    """Train on the clips of a workload, each iteration under its plan.

    Plans come from the database, are solved where none is stored, or are named with --plan. The
    gradient is that of the whole iteration's batch, whatever the plan.

    \b
    Example:
      arachne train --workload clips.csv --cluster CPU:2 --model toy --costs costs.json
    """
    from arachne_opt.db.store import PlanStore

    grouping = GroupingOptions.taken_from(options)
    workload = load_workload(options["manifest"], grouping, model_spec(options["model"]))
    with ExitStack() as stack:
        store = stack.enter_context(PlanStore.open(database_url(options["db_url"])))
        planned = _planned(store, workload, options, grouping.max_tokens)
        if planned is None:
            return INTERRUPTED
        workload, answers = planned
        job = replay_job(workload, answers, options)
        if options["dry_run"]:
            _dry_run(job, options["job_path"])
            return 0
        report = replay(job)
        keep_runs(store, report, answers)
    if options["report"]:
        from arachne_opt.executor.report import report_to_json

        write_whole(options["report"], json.dumps(report_to_json(report), indent=1) + "\n")
    if options["trace"]:
        write_trace(options["trace"], answers[-1], report)
    show_report(report, options["form"])
    return 0


def _planned(
    store: PlanStore, workload: Workload, options: dict[str, Any], max_tokens: int | None
) -> tuple[Workload, list[Answer]] | None:
    """The workload as it is trained with a plan for every iteration; None after Ctrl-C."""
    if options["group"] == "clips":
        from arachne_opt.cli.batching import chosen_workload

        if options["plan_ids"]:
            raise click.UsageError("--plan goes with the micro-batches of buckets only")
        return chosen_workload(PlanService(store), workload, options, max_tokens)
    # Without a measured table the analytic costs of the model that is trained serve.
    cluster = read_cluster(options["cluster"])
    table = options["cost_table"]
    costs = load_costs(table, None if table else options["model"], cluster)
    problems = build_problems(workload, cluster, costs, parse_degrees(options["degrees"]))
    if options["plan_ids"]:
        return workload, _named(store, problems, options["plan_ids"])
    session = Session(limits=limits_of(options), solver=DEFAULT_SOLVER, use_cache=True)
    session.run(PlanService(store), problems, None)
    return None if session.interrupted else (workload, session.answers)


def _named(
    store: PlanStore, problems: tuple[CascadeProblem, ...], plan_ids: tuple[str, ...]
) -> list[Answer]:
    if len(plan_ids) != len(problems):
        what = f"{len(plan_ids)} plans for {len(problems)} iterations"
        raise InputError(what, hint="one --plan per iteration, or --iterations to choose some")
    return [_one(store, p, i) for p, i in zip(problems, plan_ids, strict=True)]


def _one(store: PlanStore, problem: CascadeProblem, plan_id: str) -> Answer:
    from arachne_opt.cascade.problem_json import problem_from_json

    record = store.get_plan(plan_id)
    where = f"plan {record.id[:12]}"
    planned, here = problem_from_json(record.problem).cluster, problem.cluster
    if planned.device_count != here.device_count:
        what = f"the plan is for {planned.device_count} devices ({planned.name}), this run has"
        hint = f"a cluster of {planned.device_count} devices, or solving again for this one"
        raise InputError(f"{what} {here.device_count}", where=where, hint=hint)
    if record.fingerprint != problem.fingerprint():
        what = f"the plan is for {record.name}, whose tasks, costs or cluster differ from"
        raise InputError(f"{what} {problem.name}", where=where, hint="arachne solve cascade")
    plan = plan_of_record(record, problem)
    return Answer(problem=problem, plan=plan, record=record, cached=True, lookup_s=0.0)


def replay_job(workload: Workload, answers: list[Answer], options: dict[str, Any]) -> ReplayJob:
    """The job that replays the answers on the clips of a workload."""
    from arachne_opt.executor.job import ReplayJob
    from arachne_opt.executor.model_config import ModelChoice

    return ReplayJob(
        model=ModelChoice(preset=options["model"], checkpoint=options["checkpoint"]),
        iterations=replay_iterations(workload, answers),
        weight_rule=options["weights"],
        learning_rate=options["lr"],
        seed=options["seed"],
        epochs=options["epochs"],
        threads_per_rank=options["threads"],
        device=options["device"],
        save_parameters=options["save"],
    )


def replay_iterations(workload: Workload, answers: list[Answer]) -> tuple[ReplayIteration, ...]:
    """Each iteration of a workload with its plan."""
    from arachne_opt.executor.job import ReplayIteration

    return tuple(
        ReplayIteration(batches=iteration, problem=answer.problem, plan=answer.plan)
        for iteration, answer in zip(workload.iterations, answers, strict=True)
    )


def replay(job: ReplayJob) -> ReplayReport:
    """Runs a job on this machine with a progress line."""
    from arachne_opt.executor.launch import run_local

    line = ProgressLine()
    try:
        return run_local(
            job,
            job.world_size,
            on_progress=lambda p: line.show(f"step {p.done}/{p.total}  {p.text}"),
        )
    finally:
        line.clear()


def keep_runs(store: PlanStore, report: ReplayReport, answers: list[Answer]) -> None:
    """Stores what a replay measured: the runs, and their tasks as samples for cost models."""
    from arachne_opt.executor.report import measurements, run_records

    for run in run_records(report, [answer.record.id for answer in answers]):
        store.add_run(run)
    store.add_measurements(measurements(report, skip_steps=1))


def write_trace(path: Path, answer: Answer, report: ReplayReport) -> None:
    """Writes the planned and the measured timeline of the last step."""
    from arachne_opt.report.trace import chrome_trace

    measured = _measured(answer.problem, report.iterations[-1])
    write_whole(path, json.dumps(chrome_trace(answer.problem, answer.plan, measured)))
    click.echo(f"trace written to {path}", err=True)


def _measured(problem: CascadeProblem, iteration: IterationReport) -> list[Placement]:
    """A measured placement per task and rank."""
    index = {cascade.id: c for c, cascade in enumerate(problem.cascades)}
    placements = []
    for task in iteration.tasks:
        c = index[task.micro_batch]
        t = [planned.name for planned in problem.cascades[c].tasks].index(task.task)
        for span in task.ranks:
            placements.append(
                Placement(
                    cascade=c,
                    task=t,
                    devices=(span.rank,),
                    start_us=span.start_us,
                    end_us=span.end_us,
                )
            )
    return placements


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
    emit_table(head, rows)


def _dry_run(job: ReplayJob, job_path: Path | None) -> None:
    from arachne_opt.executor.job_json import job_to_json
    from arachne_opt.executor.launch import compose

    path = job_path or Path("arachne-job.json")
    if job_path:
        write_whole(path, json.dumps(job_to_json(job)))
    report_path = path.with_name(f"{path.stem}-report.json")
    click.echo(shlex.join(compose(path, job.world_size, report_path)))
