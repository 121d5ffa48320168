"""``arachne train --plan`` with a pipeline plan: trains a decoder on tokens, or rehearses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from arachne_opt.cli.options import FILE
from arachne_opt.cli.output import write_whole
from arachne_opt.cli.pipeline_report import keep_runs, show_report, write_trace
from arachne_opt.cli.progress import ProgressLine
from arachne_opt.cli.training import checkpoint_options, update_options
from arachne_opt.errors import ArachneError, InputError
from arachne_opt.settings import database_url
from arachne_opt.units import US_PER_S

if TYPE_CHECKING:
    from arachne_opt.executor.launch import Progress
    from arachne_opt.executor.pipeline.job import PipelineJob, TokenSource
    from arachne_opt.executor.pipeline.models.spec import DecoderSpec
    from arachne_opt.executor.pipeline.report import PipelineReport
    from arachne_opt.records import PlanRecord

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option("--tokens", type=FILE, help="Pipeline plans: a file of tokens, .npy or .bin."),
    click.option(
        "--token-type",
        type=click.Choice(["uint16", "uint32", "int32", "int64"]),
        default="uint16",
        show_default=True,
        help="Of a .bin file.",
    ),
    click.option("--sequence-length", type=click.IntRange(min=1), help="Tokens of a sample."),
    click.option("--steps", type=click.IntRange(min=1), help="Steps, instead of --epochs."),
    click.option(
        "--balance",
        type=click.FloatRange(min=0),
        default=0.0,
        help="Weight of the loss that evens out the load of experts.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["tables", "torch"]),
        default="tables",
        show_default=True,
        help="Our tables run every plan, torch.distributed.pipelining uniform ones.",
    ),
    click.option(
        "--pipeline-schedule",
        type=click.Choice(["1f1b", "gpipe", "interleaved"]),
        default="1f1b",
        show_default=True,
        help="Order of forwards and backwards; interleaved is torch's alone.",
    ),
    click.option(
        "--chunks",
        type=click.IntRange(min=2),
        help="Runs of layers per interleaved stage; 2 unless given.",
    ),
    click.option(
        "--moves",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="FOLDER",
        help="Go on, without a restart, under plans that replan --hand-to leaves there.",
    ),
    click.option("--any-device", is_flag=True, help="Run on devices that the plan is not for."),
    click.option(
        "--launcher",
        type=click.Choice(["torchrun", "srun"]),
        default="torchrun",
        show_default=True,
        help="What --dry-run composes.",
    ),
    click.option("--hosts", metavar="A,B", help="Hosts of the plan's nodes, in its order."),
    click.option("--rendezvous", default="", metavar="HOST:PORT", help="Where ranks meet."),
)

# What a run under a pipeline plan listens to, beyond the options above.
_USED = {
    *("plan_ids", "model", "checkpoint", "lr", "epochs", "threads", "device", "save", "report"),
    *("trace", "precision", "schedule", "warmup", "clip_norm", "checkpoint_dir"),
    *("checkpoint_every", "keep_checkpoints", "resume", "max_restarts", "emulate", "speed"),
    *("dry_run", "job_path", "seed", "db_url", "form"),
}
_OWN = (
    *("tokens", "token_type", "sequence_length", "steps", "balance", "any_device", "launcher"),
    *("hosts", "rendezvous", "engine", "pipeline_schedule", "chunks", "moves"),
)

_PATIENCE = 20.0


def pipeline_training_options(command: Command) -> Command:
    """Options of trainings under pipeline plans."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def pipeline_record(options: dict[str, Any]) -> PlanRecord | None:
    """The stored pipeline plan that ``--plan`` names; None where it names cascade plans, or none.

    Raises:
        InputError: a pipeline plan among others, or options for pipeline plans without one.
    """
    records = []
    if options["plan_ids"]:
        from arachne_opt.db.store import PlanStore

        with PlanStore.open(database_url(options["db_url"])) as store:
            records = [store.get_plan(plan_id) for plan_id in options["plan_ids"]]
    if not any(record.kind == "pipeline" for record in records):
        if given := _given(_OWN):
            what = f"{given[0]} is for pipeline plans"
            raise InputError(what, hint="--plan with a plan of arachne solve pipeline")
        return None
    if len(records) > 1:
        what = f"{len(records)} plans, and {records[0].id[:12]} is not alone in its training"
        raise InputError(what, hint="one pipeline plan")
    return records[0]


def train_pipeline(record: PlanRecord, options: dict[str, Any]) -> int:
    """Trains, rehearses, or prints the commands for a cluster."""
    names = [p.name for p in click.get_current_context().command.params if p.name]
    if strange := _given(name for name in names if name not in _USED and name not in _OWN):
        raise InputError(f"{strange[0]} does not apply to pipeline plans", where="train")
    job = _job(record, options)
    # A step that takes much longer than planned is stuck.
    job = replace(job, timeout_s=max(job.timeout_s, _PATIENCE * job.planned_us / US_PER_S))
    if options["dry_run"]:
        _dry_run(job, options)
        return 0
    if not job.emulated and _nothing_left(job):
        return 0
    report = _run(job, options["max_restarts"])
    report, job = _as_it_ended(report, job, options["db_url"])
    keep_runs(report, job, options["db_url"])
    if options["report"]:
        from arachne_opt.executor.pipeline.report import report_to_json

        write_whole(options["report"], json.dumps(report_to_json(report), indent=1) + "\n")
    if options["trace"]:
        write_trace(options["trace"], job, report)
    show_report(report, options["form"])
    return 0


def _given(names: Iterable[str]) -> list[str]:
    """Options that the user named on the command line."""
    context, wanted = click.get_current_context(), frozenset(names)
    found = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in wanted and source is ParameterSource.COMMANDLINE:
            found.append(parameter.opts[0])
    return found


def _job(record: PlanRecord, options: dict[str, Any]) -> PipelineJob:
    from arachne_opt.executor.pipeline.job import PipelineJob
    from arachne_opt.pipeline.placement import place
    from arachne_opt.pipeline.problem_json import problem_from_json
    from arachne_opt.planning.pipeline_service import pipeline_plan_of_record

    problem = problem_from_json(record.problem)
    plan = place(problem, pipeline_plan_of_record(record))
    common: dict[str, Any] = {
        "problem": problem,
        "plan": plan,
        "plan_id": record.id,
        "engine": options["engine"],
        "schedule": options["pipeline_schedule"],
        "chunks": _chunks(options),
        "moves": str(options["moves"].resolve()) if options["moves"] else "",
    }
    if options["emulate"]:
        steps = options["steps"] or options["epochs"]
        return PipelineJob(**common, steps=steps, speed=options["speed"], threads_per_rank=1)
    spec = _spec(options, plan.model)
    source = _source(options, problem.model.sequence_length)
    return PipelineJob(
        **common,
        spec=spec,
        source=source,
        pretrained=str(Path(options["checkpoint"]).resolve()) if options["checkpoint"] else "",
        steps=_steps(options, source, plan.samples),
        learning_rate=options["lr"],
        balance=options["balance"],
        seed=options["seed"],
        threads_per_rank=options["threads"],
        device=options["device"],
        any_device=options["any_device"],
        save=str(Path(options["save"]).resolve()) if options["save"] else "",
        update=update_options(options),
        checkpoints=checkpoint_options(options),
    )


def _as_it_ended(
    report: PipelineReport, job: PipelineJob, db_url: str | None
) -> tuple[PipelineReport, PipelineJob]:
    """The job under the plan of its last step, which the spans are of; no spans without it."""
    if not report.moves:
        return report, job
    from arachne_opt.db.store import PlanStore
    from arachne_opt.pipeline.placement import place
    from arachne_opt.pipeline.problem_json import problem_from_json
    from arachne_opt.planning.pipeline_service import pipeline_plan_of_record

    try:
        with PlanStore.open(database_url(db_url)) as store:
            record = store.get_plan(report.moves[-1].plan_id)
        problem = problem_from_json(record.problem)
    except ArachneError as error:
        click.echo(f"the plan that the training ended with is not here: {error}", err=True)
        return replace(report, spans=()), job
    plan = place(problem, pipeline_plan_of_record(record))
    return report, replace(job, problem=problem, plan=plan, plan_id=record.id)


def _chunks(options: dict[str, Any]) -> int:
    """Runs of layers per stage."""
    if options["pipeline_schedule"] == "interleaved":
        return options["chunks"] or 2
    if options["chunks"]:
        what = f"--chunks {options['chunks']} is for interleaved stages"
        raise InputError(what, hint="--engine torch --pipeline-schedule interleaved")
    return 1


def _spec(options: dict[str, Any], planned: str) -> DecoderSpec:
    """The model: of a checkpoint, a configuration or a name; by default that of the plan."""
    from arachne_opt.executor.pipeline.models.configs import spec_of_architecture, spec_of_config
    from arachne_opt.pipeline.presets import architecture

    if options["checkpoint"]:
        return spec_of_config(options["checkpoint"])
    name = options["model"] or planned
    if Path(name).exists():
        return spec_of_config(name)
    try:
        return spec_of_architecture(architecture(name))
    except InputError as error:
        hint = "--model with a config.json, --checkpoint with a folder, or --emulate"
        raise InputError(error.what, where=error.where, hint=hint) from error


def _source(options: dict[str, Any], planned_length: int) -> TokenSource:
    from arachne_opt.executor.pipeline.job import TokenSource

    tokens = options["tokens"]
    return TokenSource(
        path=str(Path(tokens).resolve()) if tokens else "",
        dtype=options["token_type"],
        length=options["sequence_length"] or planned_length,
    )


def _steps(options: dict[str, Any], source: TokenSource, batch: int) -> int:
    """Optimizer steps in all."""
    from arachne_opt.executor.pipeline.tokens import map_tokens, sample_count

    if not source.path:
        if not options["steps"]:
            what = "without --tokens the text is made up, and has no end"
            raise InputError(what, hint="--steps N, or --tokens FILE")
        return int(options["steps"])
    samples = sample_count(source, map_tokens(source))
    return int(options["steps"] or max(1, options["epochs"] * samples // batch))


def _nothing_left(job: PipelineJob) -> bool:
    """Whether the training that is resumed has all its steps already; says where it goes on."""
    from arachne_opt.executor.checkpoint_files import newest, refuse_begun

    if not job.checkpoints.folder:
        return False
    folder = Path(job.checkpoints.folder)
    if not job.checkpoints.resume:
        refuse_begun(folder)
        return False
    path = newest(folder)
    if path is None:
        click.echo(f"no checkpoint in {folder}: the training begins", err=True)
        return False
    done = int(path.name.partition("-")[2])
    click.echo(f"going on from {path.name}: {done} of {job.steps} steps are done", err=True)
    return done >= job.steps


def _dry_run(job: PipelineJob, options: dict[str, Any]) -> None:
    """Prints the commands for a cluster; writes the job where asked to."""
    from arachne_opt.executor.pipeline.job import job_to_json
    from arachne_opt.executor.pipeline.launch import compose, hosts_of

    path = options["job_path"] or Path("arachne-job.json")
    if options["job_path"]:
        write_whole(path, json.dumps(job_to_json(job)))
    hosts = tuple(options["hosts"].split(",")) if options["hosts"] else ()
    for line in compose(
        job,
        path,
        path.with_name(f"{path.stem}-report.json"),
        hosts=hosts_of(job, hosts),
        launcher=options["launcher"],
        rendezvous=options["rendezvous"],
        max_restarts=options["max_restarts"],
    ):
        click.echo(line)


def _run(job: PipelineJob, max_restarts: int) -> PipelineReport:
    from arachne_opt.executor.pipeline.launch import run_local

    line = ProgressLine()

    def show(progress: Progress) -> None:
        if progress.note:
            line.clear()
            click.echo(progress.note, err=True)
        line.show(f"step {progress.done}/{progress.total}  {progress.text}")

    try:
        return run_local(job, on_progress=show, max_restarts=max_restarts)
    finally:
        line.clear()
