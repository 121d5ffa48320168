"""``arachne plans``: list, show, export and delete stored plans."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.cli.options import OUTPUT, database_option, format_option
from arachne_opt.cli.output import (
    draw,
    emit_json,
    emit_table,
    iteration_text,
    percent,
    write_whole,
)
from arachne_opt.service import plan_of_record
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds


@click.group()
def plans() -> None:
    """List, show, export and delete stored plans. A unique beginning of an id is enough."""


@plans.command("list")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip so many.")
@click.option("--name", help="Only problems whose name contains this text.")
@database_option
@format_option
def list_plans(limit: int, offset: int, name: str | None, db_url: str | None, form: str) -> None:
    """List stored plans, newest first."""
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        found = store.list_plans(limit=limit, offset=offset, name=name)
    if form == "json":
        emit_json("plans", {"plans": [{**asdict(row), "gap": row.gap} for row in found]})
        return
    rows = []
    for s in found:
        makespan, bound = format_seconds(s.objective_us), format_seconds(s.bound_us)
        row = [s.id[:12], s.name, s.cluster_name, makespan, bound, percent(s.gap)]
        rows.append([*row, s.status, s.solver, s.created_at[:19]])
    head = ["plan", "problem", "cluster", "makespan", "bound", "gap", "status", "solver", "created"]
    emit_table(head, rows)


@plans.command()
@click.argument("plan_id")
@database_option
@format_option
def show(plan_id: str, db_url: str | None, form: str) -> None:
    """Show one plan: where it comes from, what is proven, and its timeline."""
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        record = store.get_plan(plan_id)
    if form == "json":
        emit_json("plan", {**asdict(record), "gap": record.gap})
        return
    problem = problem_from_json(record.problem)
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    for name, value in [
        ("plan", record.id),
        ("problem", f"{record.name} ({len(problem.cascades)} cascades)"),
        ("cluster", f"{record.cluster_name}, {problem.cluster.device_count} devices"),
        ("fingerprint", record.fingerprint),
        ("makespan", format_seconds(record.objective_us)),
        ("bound", f"{format_seconds(record.bound_us)}, gap {percent(record.gap)} of the makespan"),
        ("iteration", iteration_text(problem, record.objective_us)),
        ("status", f"{record.status}, {record.verdict} (checker and simulator agree)"),
        ("solver", f"{record.solver}, seed {record.seed}, {record.wall_s:.2f} s; {versions}"),
        ("created", record.created_at),
    ]:
        click.echo(f"{name:12s} {value}")
    click.echo(draw(problem, plan_of_record(record)))


@plans.command()
@click.argument("plan_ids", nargs=-1, required=True)
@click.option("--out", type=OUTPUT, help="File to write; without it stdout.")
@database_option
def export(plan_ids: tuple[str, ...], out: Path | None, db_url: str | None) -> None:
    """Export plans in the form arachne.cascade-plan/1, one JSON line each."""
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        lines = [json.dumps(store.get_plan(plan_id).plan) for plan_id in plan_ids]
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
    """Delete a plan; what its runs measured stays."""
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url)) as store:
        click.echo(f"deleted {store.delete_plan(plan_id, with_runs=with_runs)}")
