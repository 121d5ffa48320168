"""``arachne db``: look after the plan database."""

from __future__ import annotations

import click

from arachne_opt.cli.database_copies import backup, restore, stats
from arachne_opt.cli.options import database_option
from arachne_opt.errors import StoreError
from arachne_opt.settings import database_url


@click.group()
def database() -> None:
    """Look after the plan database.

    A SQLite file of this user by default; ARACHNE_DB or --db names another file or a
    SQLAlchemy URL such as postgresql+psycopg://user@host/plans.
    """


for _command in (backup, restore, stats):
    database.add_command(_command)


@database.command()
@database_option
def upgrade(db_url: str | None) -> None:
    """Create the tables, or bring an older schema up to date without loss.

    Example: arachne db upgrade --db postgresql://planner@pool/plans
    """
    from arachne_opt.db import migrate

    click.echo(f"schema {migrate.upgrade(database_url(db_url))}")


@database.command()
@database_option
def current(db_url: str | None) -> None:
    """Print the schema version of the database and of this program.

    Example: arachne db current
    """
    from arachne_opt.db import migrate

    click.echo(f"database {migrate.current(database_url(db_url))}, program {migrate.head()}")


@database.command()
@database_option
def check(db_url: str | None) -> int:
    """Check schema, integrity and every stored payload; exit 6 when something is wrong.

    Example: arachne db check --db postgresql://planner@pool/plans
    """
    from arachne_opt.db import migrate

    health = migrate.check(database_url(db_url))
    if health.ok:
        click.echo("ok")
        return 0
    for kind in ("drift", "damage", "dangling"):
        for line in getattr(health, kind):
            click.echo(f"{kind}: {line}")
    return StoreError.exit_code
