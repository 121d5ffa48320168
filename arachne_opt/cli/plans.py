"""``arachne plans``: list, show, export and delete stored plans."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.cli.options import OUTPUT, database_option, format_option
from arachne_opt.cli.output import (
    draw,
    emit_json,
    iteration_text,
    percent,
    write_whole,
)
from arachne_opt.cli.plan_diff import diff
from arachne_opt.cli.plan_export import CASCADE_TARGETS, PIPELINE_TARGETS, export_to
from arachne_opt.cli.plan_import import import_plans, record_to_json
from arachne_opt.cli.plan_table import filter_options, show_summaries
from arachne_opt.cli.plan_upkeep import best, gc
from arachne_opt.planning.service import plan_of_record
from arachne_opt.records import PlanRecord
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds


@click.group()
def plans() -> None:
    """List, show, compare and keep stored plans. A unique beginning of an id is enough."""


for _command in (diff, best, import_plans, gc):
    plans.add_command(_command)


@plans.command("list")
@filter_options
@database_option
@format_option
def list_plans(db_url: str | None, form: str, **filters: Any) -> None:  # noqa: ANN401
    """List stored plans, newest first.

    Example: arachne plans list --kind cascade --limit 20
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        found = store.list_plans(**filters)
    show_summaries(found, form)


@plans.command()
@click.argument("plan_id")
@database_option
@format_option
def show(plan_id: str, db_url: str | None, form: str) -> None:
    """Show one plan: where it comes from, what is proven, and its timeline.

    Example: arachne plans show 6b0c88d6
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        record = store.get_plan(plan_id)
    if form == "json":
        emit_json("plan", {**asdict(record), "gap": record.gap})
        return
    rows, drawing = _pipeline(record) if record.kind == "pipeline" else _cascade(record)
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    marks = ", stale: newer prices replaced its own" if record.stale else ""
    if record.quarantine is not None:
        marks += f", in quarantine: {record.quarantine}"
    for name, value in [
        ("plan", record.id),
        *rows,
        ("fingerprint", record.fingerprint),
        ("prices", record.cost_version or "unnamed"),
        ("status", f"{record.status}, {record.verdict} (checker and simulator agree){marks}"),
        ("solver", f"{record.solver}, seed {record.seed}, {record.wall_s:.2f} s; {versions}"),
        ("created", record.created_at),
    ]:
        click.echo(f"{name:12s} {value}")
    click.echo(drawing)


def _cascade(record: PlanRecord) -> tuple[list[tuple[str, str]], str]:
    """What is said of a cascade plan only, and its timeline."""
    problem = problem_from_json(record.problem)
    bound = f"{format_seconds(record.bound_us)}, gap {percent(record.gap)} of the makespan"
    rows = [
        ("problem", f"{record.name} ({len(problem.cascades)} cascades)"),
        ("cluster", f"{record.cluster_name}, {problem.cluster.device_count} devices"),
        ("makespan", format_seconds(record.objective_us)),
        ("bound", bound),
        ("iteration", iteration_text(problem, record.objective_us)),
    ]
    return rows, draw(problem, plan_of_record(record))


def _pipeline(record: PlanRecord) -> tuple[list[tuple[str, str]], str]:
    """What is said of a pipeline plan only, and its stages."""
    from arachne_opt.cli.pipeline import describe
    from arachne_opt.pipeline.plan_json import plan_from_json

    plan = plan_from_json(record.plan)
    rows = [
        ("problem", f"{record.name} ({plan.global_batch} samples)"),
        ("cluster", record.cluster_name),
        ("iteration", format_seconds(record.objective_us)),
        ("bound", f"{format_seconds(record.bound_us)}, gap {percent(record.gap)}"),
    ]
    return rows, "\n".join(describe(plan))


@plans.command()
@click.argument("plan_ids", nargs=-1, required=True)
@click.option("--with-problem", is_flag=True, help="All that `plans import` needs.")
@click.option(
    "--to",
    "target",
    type=click.Choice([*PIPELINE_TARGETS, *CASCADE_TARGETS]),
    help="One plan in the form of another trainer.",
)
@click.option("--nearest", is_flag=True, help="With --to: the nearest plan that it can be told.")
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds to look for the nearest plan.",
)
@click.option("--out", "-o", type=OUTPUT, help="File to write; without it stdout.")
@database_option
def export(
    plan_ids: tuple[str, ...],
    with_problem: bool,
    target: str | None,
    nearest: bool,
    time_limit_s: float,
    out: Path | None,
    db_url: str | None,
) -> None:
    """Export plans in JSON, one line each, or one plan for another trainer.

    \b
    --to megatron, torchtitan, accelerate or deepspeed takes a pipeline plan. What
    the trainer cannot be told is listed, with the nearest plan that it can be told;
    then exit code 2, and --nearest writes that plan.
    --to per-rank or groups takes a cascade plan.

    Example: arachne plans export 3f2a --to megatron -o args.sh
    """
    from arachne_opt.db.store import PlanStore

    if nearest and target is None:
        raise click.UsageError("--nearest goes with --to")
    if target is not None and (len(plan_ids) > 1 or with_problem):
        raise click.UsageError("--to takes one plan, without --with-problem")
    with PlanStore.open(database_url(db_url), read_only=True) as store:
        records = [store.get_plan(plan_id) for plan_id in plan_ids]
    if target is not None:
        export_to(records[0], target, out, nearest=nearest, time_limit_s=time_limit_s)
        return
    values = [record_to_json(r) if with_problem else r.plan for r in records]
    lines = [json.dumps(value) for value in values]
    text = "\n".join(lines) + "\n"
    if out is None:
        click.echo(text, nl=False)
        return
    write_whole(out, text)
    click.echo(f"{len(lines)} plans written to {out}", err=True)


@plans.command()
@click.argument("plan_id")
@click.option("--with-runs", is_flag=True, help="Delete the plan's runs too.")
@database_option
def delete(plan_id: str, with_runs: bool, db_url: str | None) -> None:
    """Delete a plan; what its runs measured stays.

    Example: arachne plans delete 6b0c88d6
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url)) as store:
        click.echo(f"deleted {store.delete_plan(plan_id, with_runs=with_runs)}")
