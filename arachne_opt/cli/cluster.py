"""``arachne cluster``: read and check descriptions of clusters."""

from __future__ import annotations

from collections import Counter

import click

from arachne_opt.cli.cluster_import import detect, export, import_cluster
from arachne_opt.cli.options import format_option
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import cluster_to_dict, read_cluster
from arachne_opt.units import format_bytes


@click.group()
def cluster() -> None:
    """Read and check descriptions of clusters.

    A cluster is a TOML file or a shorthand such as "H100-80:8x4, A100-80:8x2": device type,
    devices per node, nodes.
    """


for _command in (import_cluster, detect, export):
    cluster.add_command(_command)


@cluster.command()
@click.argument("source")
def validate(source: str) -> None:
    """Check a cluster file or shorthand.

    Example: arachne cluster validate cluster.toml
    """
    found = read_cluster(source)
    click.echo(f"{found.name}: {summary(found)}")


@cluster.command()
@click.argument("source")
@format_option
def show(source: str, form: str) -> None:
    """Show the nodes, links and penalty of a cluster.

    Example: arachne cluster show "H100-80:8x4"
    """
    show_cluster(read_cluster(source), form)


def show_cluster(found: Cluster, form: str) -> None:
    """Prints nodes, links and penalty."""
    if form == "json":
        emit_json("cluster", cluster_to_dict(found))
        return
    click.echo(f"{found.name}: {summary(found)}")
    rows = []
    for node in found.nodes:
        kind, link = node.device_type, node.intra_link
        nics = " ".join(map(str, node.nic_of_device))
        speed = f"{format_bytes(link.bandwidth_bytes_per_s)}/s"
        memory = format_bytes(kind.memory_bytes)
        rows.append([node.name, kind.name, node.device_count, memory, nics, speed, node.zone])
    emit_table(["node", "type", "devices", "memory", "NIC groups", "link", "zone"], rows)
    inter = f"{format_bytes(found.inter_link.bandwidth_bytes_per_s)}/s"
    penalties = ", ".join(f"{found.penalty.ppm(o) / 1e6:.4f}" for o in (1.0, 0.5, 0.0))
    click.echo(f"between nodes: {inter}; penalty at overlap 1, 1/2, 0: {penalties}")


def summary(found: Cluster) -> str:
    """Devices and nodes by type."""
    types = Counter(node.device_type.name for node in found.nodes)
    parts = [f"{found.count_of_type[name]} {name} on {n} nodes" for name, n in types.items()]
    return f"{found.device_count} devices ({', '.join(parts)})"
