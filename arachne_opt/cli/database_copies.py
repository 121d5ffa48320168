"""``arachne db backup|restore|stats``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from arachne_opt.cli.options import FILE, OUTPUT, database_option, format_option
from arachne_opt.cli.output import emit_json
from arachne_opt.settings import database_url
from arachne_opt.units import format_bytes


@click.command()
@click.argument("target", type=OUTPUT)
@database_option
def backup(target: Path, db_url: str | None) -> None:
    """Copy the whole database into a new SQLite file, while others go on using it.

    Example: arachne db backup plans-today.db
    """
    from arachne_opt.db.backup import backup as write_backup

    size_bytes = write_backup(database_url(db_url), target)
    click.echo(f"{format_bytes(size_bytes)} written to {target}")


@click.command()
@click.argument("source", type=FILE)
@database_option
def restore(source: Path, db_url: str | None) -> None:
    """Fill an empty or missing database from a backup.

    The database may be of another kind: this also moves plans from SQLite to PostgreSQL and back.

    Example: arachne db restore plans-today.db --db new.db
    """
    from arachne_opt.db.backup import restore as read_backup

    click.echo(f"{read_backup(database_url(db_url), source)} rows restored")


@click.command()
@database_option
@format_option
def stats(db_url: str | None, form: str) -> None:
    """Print how much is stored, and how much of it is history, stale or in quarantine.

    Example: arachne db stats
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        found = store.stats()
        where = store.database.location.label
    if form == "json":
        emit_json("db-stats", {"database": where, **asdict(found)})
        return
    click.echo(where)
    for name, count in found.rows.items():
        click.echo(f"{name:18s} {count}")
    plans = found.rows["plans"]
    click.echo(f"{'answers':18s} {found.answers}; {plans - found.answers} plans are history")
    click.echo(f"{'stale':18s} {found.stale}; in quarantine {found.quarantined}")
    click.echo(
        f"{'size':18s} {format_bytes(found.size_bytes)}, free {format_bytes(found.free_bytes)}"
    )
    if found.oldest:
        click.echo(f"{'stored':18s} {found.oldest} to {found.newest}")
