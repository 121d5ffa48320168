"""``arachne train``: replay plans with torch and train a model."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cli.emulate import emulate, emulation_options, require_workload
from arachne_opt.cli.options import (
    FILE,
    OUTPUT,
    database_option,
    format_option,
    group_option,
    limit_options,
    limits_of,
    recompute_option,
    text_encoder_option,
    workload_options,
)
from arachne_opt.cli.output import write_whole
from arachne_opt.cli.replays import replay, replay_iterations
from arachne_opt.cli.run_report import (
    keep_runs_if_possible,
    quarantine_left_out,
    show_report,
    write_trace,
)
from arachne_opt.cli.session import Session
from arachne_opt.cli.sources import (
    GroupingOptions,
    build_problems,
    load_costs,
    load_workload,
    parse_degrees,
)
from arachne_opt.cli.train_pipeline import (
    pipeline_record,
    pipeline_training_options,
    train_pipeline,
)
from arachne_opt.cli.training import (
    checkpoint_options,
    note_failures,
    opening_of,
    resume_position,
    step_log,
    training_options,
    update_options,
)
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.errors import INTERRUPTED, LEFT_OUT, InputError
from arachne_opt.models import model_spec
from arachne_opt.planning.service import DEFAULT_SOLVER, Answer, PlanService, plan_of_record
from arachne_opt.settings import database_url
from arachne_opt.workload import Iteration, Workload

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.job import ReplayJob
    from arachne_opt.executor.report import IterationReport, ReplayReport
    from arachne_opt.executor.sampler import Position, Sampler

# Iterations, each with the answer that has its plan.
Planned = tuple[tuple[Iteration, ...], list[Answer]]

# Gives a plan in milliseconds, to begin with.
QUICK_SOLVER = "list"


@click.command()
@click.option("--workload", "manifest", type=FILE, help="Manifest of clips.")
@workload_options
@group_option
@click.option("--cluster", help="Cluster file or shorthand; one rank per device.")
@click.option("--model", help="Model preset, such as tiny-wan or toy, or module:NAME of your own.")
@click.option("--checkpoint", default="", help="Local folder in diffusers' layout instead.")
@recompute_option
@text_encoder_option
@click.option("--costs", "cost_table", type=FILE, help="Measured costs; else analytic ones.")
@click.option("--degrees", help="Degrees to choose from, such as 1,2,4.")
@click.option("--plan", "plan_ids", multiple=True, help="Stored plan, one per iteration in order.")
@click.option(
    "--weights",
    type=click.Choice(["clip", "token"]),
    default="clip",
    show_default=True,
    help="What counts alike in the loss: clips or tokens.",
)
@click.option(
    "--lr", type=click.FloatRange(min=0), default=1e-4, show_default=True, help="Learning rate."
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Times that each clip is trained.",
)
@click.option("--threads", type=click.IntRange(min=0), default=0, help="Per rank; 0 shares cores.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="Where ranks compute.",
)
@click.option("--save", default="", help="File for the parameters at the end.")
@click.option("--report", type=OUTPUT, help="Write the full report to this file.")
@click.option("--trace", type=OUTPUT, help="Write a trace of the last iteration, both timelines.")
@training_options
@pipeline_training_options
@emulation_options
@click.option("--dry-run", is_flag=True, help="Print the commands that start the ranks.")
@click.option("--job", "job_path", type=OUTPUT, help="Write the job file here (with --dry-run).")
@limit_options
@database_option
@format_option
def train(**options: Any) -> int:  # noqa: ANN401
    """Train on the clips of a workload, each iteration under its plan; or under a pipeline plan.

    Plans come from the database, are solved where none is stored, or are named with --plan. The
    gradient is that of the whole iteration's batch, whatever the plan. With a pipeline plan a
    decoder is trained on tokens.

    \b
    Examples:
      arachne train --workload clips.csv --cluster CPU:2 --model toy --costs costs.json
      arachne train --plan 3fa9 --checkpoint llama/ --tokens corpus.bin --dry-run
    """
    if options["group"] == "clips" and (options["plan_ids"] or options["plan_ahead"]):
        what = "--plan and --plan-ahead go with the micro-batches of buckets only"
        raise click.UsageError(what)
    record = pipeline_record(options)
    if record is not None:
        return train_pipeline(record, options)
    require_workload(options)
    grouping = GroupingOptions.taken_from(options)
    if options["emulate"]:
        return emulate(options, lambda store: _answers(store, options, grouping))
    return _train(options, grouping)


def _train(options: dict[str, Any], grouping: GroupingOptions) -> int:
    """Plans the iterations of a workload and trains by them."""
    from arachne_opt.db.store import PlanStore

    dropped: dict[str, str] = {}
    workload = load_workload(
        options["manifest"],
        grouping,
        model_spec(options["model"]),
        on_dropped=dropped.__setitem__,
    )
    checkpoint_options(options)  # what is wrong with them is said before anything is planned
    with ExitStack() as stack:
        store = stack.enter_context(PlanStore.open(database_url(options["db_url"])))
        position = resume_position(options)
        planned = _planned(store, workload, options, grouping.max_tokens)
        rest = opening_of(planned[0], position) if planned else ()
        opening = _opening(store, workload, rest, options, grouping.max_tokens)
        if planned is None or opening is None:
            return INTERRUPTED
        job = replay_job(*planned, options, opening=opening, position=position)
        if options["dry_run"]:
            _dry_run(job, options)
            return 0
        report = train_job(job, store, options, position)
        if report is None:
            return 0
        report = replace(report, dropped=tuple(sorted(dropped.items())))
        keep_runs_if_possible(store, report)
    quarantine_left_out(report, options["manifest"], workload)
    _give(report, planned[1] + opening[1], options)
    left_out = any(iteration.left_out for iteration in report.iterations)
    return LEFT_OUT if left_out and not options["allow_left_out"] else 0


def _answers(
    store: PlanStore, options: dict[str, Any], grouping: GroupingOptions
) -> list[Answer] | None:
    """A plan for every iteration of a workload, for a rehearsal; None after Ctrl-C."""
    workload = load_workload(options["manifest"], grouping, model_spec(options["model"]))
    planned = _planned(store, workload, options, grouping.max_tokens)
    return None if planned is None else planned[1]


def _give(report: ReplayReport, answers: list[Answer], options: dict[str, Any]) -> None:
    """Writes and prints what was asked for."""
    if options["report"]:
        from arachne_opt.executor.report import report_to_json

        write_whole(options["report"], json.dumps(report_to_json(report), indent=1) + "\n")
    if options["trace"]:
        write_trace(options["trace"], answers, report)
    note_failures(report.notes)
    show_report(report, options["form"])


def _opening(
    store: PlanStore,
    workload: Workload,
    rest: tuple[Iteration, ...],
    options: dict[str, Any],
    max_tokens: int | None,
) -> Planned | None:
    """The rest of a begun epoch with its plans, empty where it needs none; None after Ctrl-C."""
    if not rest:
        return (), []
    if options["plan_ids"]:
        what = "the rest of the begun epoch has other micro-batches than the plans named"
        raise InputError(what, hint="resuming without --plan")
    click.echo(f"planning the {len(rest)} iterations that are left of the epoch", err=True)
    left = Workload(name=f"{workload.name} (rest)", iterations=rest)
    return _planned(store, left, options, max_tokens)


def _planned(
    store: PlanStore, workload: Workload, options: dict[str, Any], max_tokens: int | None
) -> Planned | None:
    """The iterations as they are trained with a plan for each; None after Ctrl-C."""
    if options["group"] == "clips":
        from arachne_opt.cli.batching import chosen_workload

        chosen = chosen_workload(PlanService(store), workload, options, max_tokens)
        return None if chosen is None else (chosen[0].iterations, chosen[1])
    cluster = read_cluster(options["cluster"])
    costs = training_costs(options, cluster)
    problems = build_problems(workload, cluster, costs, parse_degrees(options["degrees"]))
    if options["plan_ids"]:
        return workload.iterations, _named(store, problems, options["plan_ids"])
    solver = QUICK_SOLVER if options["plan_ahead"] else DEFAULT_SOLVER
    session = Session(limits=limits_of(options), solver=solver, use_cache=True)
    session.run(PlanService(store), problems, None)
    return None if session.interrupted else (workload.iterations, session.answers)


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


def replay_job(
    iterations: tuple[Iteration, ...],
    answers: list[Answer],
    options: dict[str, Any],
    *,
    opening: Planned = ((), []),
    position: Position | None = None,
) -> ReplayJob:
    """The job that replays the answers on the clips of a workload."""
    from arachne_opt.executor.job import ReplayJob
    from arachne_opt.executor.model_config import ModelChoice

    return ReplayJob(
        model=ModelChoice(
            preset=options["model"],
            checkpoint=options["checkpoint"],
            checkpointing=options["recompute"] == "always",
        ),
        iterations=replay_iterations(iterations, answers),
        weight_rule=options["weights"],
        learning_rate=options["lr"],
        seed=options["seed"],
        epochs=options["epochs"],
        threads_per_rank=options["threads"],
        device=options["device"],
        save_parameters=options["save"],
        update=update_options(options),
        checkpoints=checkpoint_options(options),
        opening=replay_iterations(*opening),
        opening_epoch=position.epoch if position else 0,
    )


def train_job(
    job: ReplayJob, store: PlanStore, options: dict[str, Any], position: Position | None
) -> ReplayReport | None:
    """The report of a run, with help beside it where that was asked for; None with nothing left."""
    from arachne_opt.executor.sampler import Sampler

    sampler = Sampler(job, position)
    if sampler.position.step >= sampler.total_steps:
        click.echo(f"all {job.epochs} epochs are trained; nothing is left to do", err=True)
        return None
    with ExitStack() as stack:
        log = stack.enter_context(step_log(options["tensorboard"], job.world_size))
        if not options["plan_ahead"] and options["replan_above"] is None:
            return replay(job, on_step=log, max_restarts=options["max_restarts"])
        return _accompanied(job, store, options, sampler, log)


def _accompanied(
    job: ReplayJob,
    store: PlanStore,
    options: dict[str, Any],
    sampler: Sampler,
    log: Callable[[IterationReport], None],
) -> ReplayReport:
    """The report of a run with a companion that plans beside it."""
    from arachne_opt.planning.companion import Companion, Outlook

    cluster = read_cluster(options["cluster"])
    first = sampler.position.step
    steps = range(first, sampler.total_steps)
    outlook = Outlook(
        steps=tuple(sampler.iteration_at(step).batches for step in steps),
        first_step=first,
        cluster=cluster,
        costs=training_costs(options, cluster),
        degrees=parse_degrees(options["degrees"]),
    )
    with TemporaryDirectory(prefix="arachne-plans-") as folder:
        companion = Companion(
            outlook,
            limits_of(options),
            store=store,
            database=database_url(options["db_url"]),
            plan_folder=Path(folder),
            replan_above=options["replan_above"],
            ahead=options["plan_ahead"],
            tell=lambda text: click.echo(text, err=True),
        )

        def on_step(report: IterationReport) -> None:
            companion.on_step(report)
            log(report)

        with companion:
            job = replace(job, plan_folder=folder)
            return replay(job, on_step=on_step, max_restarts=options["max_restarts"])


def training_costs(options: dict[str, Any], cluster: Cluster) -> CostModel:
    """Measured costs, else the analytic ones of the model that is trained."""
    table = options["cost_table"]
    return load_costs(
        table,
        None if table else options["model"],
        cluster,
        text_encoder=options["text_encoder"],
        recompute=options["recompute"],
        sharding=options["sharding"],
    )


def _dry_run(job: ReplayJob, options: dict[str, Any]) -> None:
    """Prints the command for a cluster; writes the job where asked to."""
    from arachne_opt.executor.job_json import job_to_json
    from arachne_opt.executor.launch import compose

    if options["plan_ahead"] or options["replan_above"] is not None:
        what = "--plan-ahead and --replan-above need a run that arachne itself starts"
        click.echo(f"{what}; they are left out", err=True)
    job_path, max_restarts = options["job_path"], options["max_restarts"]
    path = job_path or Path("arachne-job.json")
    if job_path:
        write_whole(path, json.dumps(job_to_json(job)))
    report_path = path.with_name(f"{path.stem}-report.json")
    command = shlex.join(compose(path, job.world_size, report_path, max_restarts=max_restarts))
    # Restarted ranks would else read what the ranks before them left in the store.
    click.echo(f"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 {command}" if max_restarts else command)
