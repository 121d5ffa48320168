"""``arachne clusters``: the clusters that plans were made for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from arachne_opt.cli.cluster import show_cluster, summary
from arachne_opt.cli.options import database_option, format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import cluster_from_dict, read_cluster
from arachne_opt.records import ClusterRecord
from arachne_opt.settings import database_url


@click.group()
def clusters() -> None:
    """List, show and compare clusters that plans are stored for.

    A cluster is named by its id, a unique beginning of it, or a unique name.
    """


@clusters.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Rows to show, the newest first.",
)
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip so many.")
@click.option("--name", help="Only clusters whose name contains this text.")
@database_option
@format_option
def list_clusters(limit: int, offset: int, name: str | None, db_url: str | None, form: str) -> None:
    """List clusters, newest first.

    Example: arachne clusters list --limit 5
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        found = store.list_clusters(limit=limit, offset=offset, name=name)
    if form == "json":
        emit_json("clusters", {"clusters": [asdict(record) for record in found]})
        return
    rows = [
        [r.id[:12], r.name, summary(_read(r)), r.problems, r.plans, r.created_at[:19]]
        for r in found
    ]
    emit_table(["cluster", "name", "devices", "problems", "plans", "created"], rows)


@clusters.command()
@click.argument("cluster")
@database_option
@format_option
def show(cluster: str, db_url: str | None, form: str) -> None:
    """Show the nodes and links of a stored cluster.

    Example: arachne clusters show 3fa9 --format json
    """
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        record = store.get_cluster(cluster)
    show_cluster(_read(record), form)


@clusters.command()
@click.argument("cluster_a")
@click.argument("cluster_b")
@database_option
@format_option
def diff(cluster_a: str, cluster_b: str, db_url: str | None, form: str) -> None:
    """Say in words what one cluster has and another has not.

    Each is a stored cluster, a cluster file or a shorthand such as H100-80:8x4.

    Example: arachne clusters diff 3fa9 81c2
    """
    from arachne_opt.report.cluster_diff import cluster_changes

    a, b = (_named(name, db_url) for name in (cluster_a, cluster_b))
    changes = cluster_changes(a, b)
    if form == "json":
        emit_json("cluster-diff", {"a": a.name, "b": b.name, "changes": changes})
        return
    click.echo(f"from {a.name} to {b.name}:")
    for line in changes or ["nothing: they differ in names only"]:
        click.echo(f"  {line}")


def _named(name: str, db_url: str | None) -> Cluster:
    if ":" in name or Path(name).is_file():
        return read_cluster(name)
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        return _read(store.get_cluster(name))


def _read(record: ClusterRecord) -> Cluster:
    return cluster_from_dict(record.description, f"cluster {record.id}")
