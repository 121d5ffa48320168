"""``arachne cluster import``, ``detect`` and ``export``: clusters from and for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.options import FILE, OUTPUT, PATH, format_option
from arachne_opt.cli.output import emit_json, write_whole
from arachne_opt.cli.workload_import import chosen, sniffed, tell
from arachne_opt.cluster_file import cluster_to_dict, read_cluster
from arachne_opt.device_types import device_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from arachne_opt.cluster import DeviceType
    from arachne_opt.importers.cluster_facts import ClusterOptions, ImportedCluster

    Command = Callable[..., object]

_FORMATS = "nvidia-smi, slurm, kubernetes, ray, skypilot, arachne"


def _import_options(command: Command) -> Command:
    for option in (
        click.option(
            "--type",
            "types",
            multiple=True,
            metavar="NAME=TYPE",
            help="Device type of a name in the source, such as a100=A100-80.",
        ),
        click.option(
            "--nodes",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="So many nodes like each one that is described.",
        ),
        click.option("--name", help="Name of the cluster.  [default: that of the file]"),
        click.option("--out", "-o", type=OUTPUT, help="TOML file to write; without it stdout."),
        format_option,
    ):
        command = option(command)
    return command


@click.command("import")
@click.argument("sources", type=PATH, nargs=-1, required=True)
@click.option("--from", "source_format", metavar="FORMAT", help=f"One of {_FORMATS}.")
@click.option("--topology", type=FILE, help="With nvidia-smi: output of nvidia-smi topo -m.")
@_import_options
def import_cluster(
    sources: tuple[Path, ...],
    source_format: str | None,
    topology: Path | None,
    types: tuple[str, ...],
    nodes: int,
    name: str | None,
    out: Path | None,
    form: str,
) -> None:
    """Turn what a driver or a scheduler says into a cluster file of ours.

    \b
    SOURCE is one of
      nvidia-smi --query-gpu=index,name,memory.total --format=csv   (a file per node)
      nvidia-smi -q -x                                              (a file per node)
      scontrol show node | scontrol show job -d
      kubectl get nodes -o json
      ray list nodes --format json | ray status -v
      a task of SkyPilot

    Example: arachne cluster import nodes.txt --from slurm -o cluster.toml
    """
    from arachne_opt.importers.cluster_sources import CLUSTER_FORMATS, recognise_cluster

    kind = chosen(source_format, CLUSTER_FORMATS) or sniffed(*recognise_cluster(sources[0]))
    options = _options(types, nodes, name or sources[0].stem)
    if kind == "nvidia-smi":
        found = _of_nodes(sources, topology, options)
    elif topology is not None:
        raise click.UsageError("--topology goes with --from nvidia-smi")
    elif len(sources) > 1:
        raise click.UsageError("several files go with --from nvidia-smi only")
    else:
        found = CLUSTER_FORMATS[kind].read(sources[0], options)
    _give(found, out, form)


@click.command()
@_import_options
def detect(
    types: tuple[str, ...], nodes: int, name: str | None, out: Path | None, form: str
) -> None:
    """Describe this machine, by nvidia-smi or else by torch.

    Example: arachne cluster detect --nodes 4 -o cluster.toml
    """
    from arachne_opt.importers.this_host import detect as detected

    _give(detected(_options(types, nodes, name or "this-host")), out, form)


@click.command()
@click.argument("source")
@click.option(
    "--to",
    "target",
    type=click.Choice(["toml", "json", "skypilot"]),
    default="toml",
    show_default=True,
    help="Form to write.",
)
@click.option("--out", "-o", type=OUTPUT, help="File to write; without it stdout.")
def export(source: str, target: str, out: Path | None) -> None:
    """Write a cluster in full, or for another program.

    Example: arachne cluster export "H100-80:8x4" --to skypilot
    """
    from arachne_opt.exporters.cluster_texts import CLUSTER_TEXTS

    made = CLUSTER_TEXTS[target](read_cluster(source))
    for line in made.lost:
        click.echo(f"lost: {line}", err=True)
    _write(made.text, out)


def _of_nodes(
    sources: tuple[Path, ...], topology: Path | None, options: ClusterOptions
) -> ImportedCluster:
    from arachne_opt.importers.cluster_sources import read_nvidia_smi
    from arachne_opt.importers.node import read_text
    from arachne_opt.importers.nvidia_topology import read_topology

    matrix = read_topology(read_text(topology), str(topology)) if topology else None
    return read_nvidia_smi(sources, options, matrix)


def _options(types: tuple[str, ...], nodes: int, name: str) -> ClusterOptions:
    from arachne_opt.importers.cluster_facts import ClusterOptions

    return ClusterOptions(name=name, types=dict(map(_pair, types)), copies=nodes)


def _pair(text: str) -> tuple[str, DeviceType]:
    theirs, equals, ours = text.rpartition("=")
    if not (theirs and equals):
        raise click.BadParameter(f"cannot read {text!r}; try a100=A100-80", param_hint="--type")
    return theirs.strip().lower(), device_type(ours.strip(), where="--type")


def _give(found: ImportedCluster, out: Path | None, form: str) -> None:
    from arachne_opt.cli.cluster import summary
    from arachne_opt.exporters.cluster_texts import cluster_toml

    tell(found.notes)
    text = cluster_toml(found.cluster).text
    if form == "json":
        body = {"cluster": cluster_to_dict(found.cluster), "notes": list(found.notes)}
        if out is not None:
            write_whole(out, text)
        emit_json("cluster-import", body)
        return
    if out is not None:
        click.echo(f"{found.cluster.name}: {summary(found.cluster)}; written to {out}")
    _write(text, out)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text, nl=False)
    else:
        write_whole(out, text)
