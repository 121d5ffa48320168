"""``arachne plans best|gc``: the answers of the database, and what it does without."""

from __future__ import annotations

import click

from arachne_opt.cli.options import database_option, format_option
from arachne_opt.cli.output import emit_json
from arachne_opt.cli.plan_table import filter_options, show_summaries
from arachne_opt.settings import database_url

_DAY_S = 86_400


@click.command()
@filter_options
@database_option
@format_option
def best(db_url: str | None, form: str, **filters: object) -> None:
    """List the best plan of each problem: what a request for it is answered with.

    The bound is the highest that any plan of the problem proves.

    Example: arachne plans best --limit 5
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        found = store.list_plans(best=True, **filters)  # type: ignore[arg-type]  # options by name
    show_summaries(found, form)


@click.command()
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Best plans of each problem to keep.",
)
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Only plans that are older than so many days.",
)
@click.option("--stale", is_flag=True, help="Also plans whose prices were replaced by newer ones.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@database_option
@format_option
def gc(keep: int, days: float, stale: bool, dry_run: bool, db_url: str | None, form: str) -> None:
    """Delete plans that later ones made useless.

    Kept for each problem: the best plans, the plan with the highest bound, plans with runs.
    Plans in quarantine go.

    Example: arachne plans gc --dry-run
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=dry_run) as store:
        gone = store.remove_superseded(
            keep=keep, older_than_s=days * _DAY_S, stale=stale, dry=dry_run
        )
    if form == "json":
        emit_json("plans-gc", {"dry_run": dry_run, "plans": list(gone)})
        return
    noun = "plan" if len(gone) == 1 else "plans"
    click.echo(f"{'would delete' if dry_run else 'deleted'} {len(gone)} {noun}")
