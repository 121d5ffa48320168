"""``arachne runs``: what replays measured."""

from __future__ import annotations

from dataclasses import asdict

import click

from arachne_opt.cli.options import database_option, format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.settings import database_url
from arachne_opt.units import format_seconds


@click.group()
def runs() -> None:
    """List and show replays of stored plans."""


@runs.command("list")
@click.option("--plan", help="Only runs of this plan.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Rows to show, the newest first.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip so many.")
@database_option
@format_option
def list_runs(plan: str | None, limit: int, offset: int, db_url: str | None, form: str) -> None:
    """List runs, newest first.

    Example: arachne runs list --limit 5
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        found = store.list_runs(limit=limit, offset=offset, plan=plan)
    if form == "json":
        emit_json("runs", {"runs": [{**asdict(row), "fidelity": row.fidelity} for row in found]})
        return
    rows = []
    for run in found:
        planned, measured = format_seconds(run.planned_us), format_seconds(run.measured_us)
        ratio = None if run.fidelity is None else f"{run.fidelity:.2f}"
        row = [run.id[:12], run.plan_id[:12], run.plan_name, run.world_size, planned, measured]
        rows.append([*row, ratio, run.status, run.created_at[:19]])
    head = ["run", "plan", "problem", "ranks", "planned", "measured", "ratio", "status", "created"]
    emit_table(head, rows)


@runs.command()
@click.argument("run_id")
@database_option
def show(run_id: str, db_url: str | None) -> None:
    """Print the full report of a run as JSON.

    Example: arachne runs show 6b0c980e
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        run = store.get_run(run_id)
    emit_json("run", {**asdict(run), "fidelity": run.fidelity})
