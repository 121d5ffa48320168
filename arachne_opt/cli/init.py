"""``arachne init``: a commented arachne.toml after what this machine has."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from arachne_opt.cli.output import write_whole
from arachne_opt.errors import InputError
from arachne_opt.settings_files import FILE_NAME


@click.command()
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(FILE_NAME),
    show_default=True,
    help="File to write.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def init(out: Path, force: bool) -> None:
    """Write a commented arachne.toml for this machine.

    Every key is a long option without its dashes; what stands at the top serves all commands.

    Example: arachne init && arachne config show --origin
    """
    if out.exists() and not force:
        raise InputError("there is a file already", where=str(out), hint="--force to replace it")
    cluster, told = _cluster()
    write_whole(out, _text(cluster, told, os.cpu_count() or 1))
    click.echo(f"wrote {out}: {told}", err=True)


def _cluster() -> tuple[str | None, str]:
    """This machine's GPUs as a shorthand, and what was found in words."""
    from arachne_opt.importers.cluster_facts import ClusterOptions
    from arachne_opt.importers.this_host import QUERY, detect

    if shutil.which(QUERY[0]) is None:  # loading torch, only to hear the same, takes seconds
        return None, f"no GPU, as there is no {QUERY[0]}"
    try:
        found = detect(ClusterOptions(name="this-host", types={}, copies=1)).cluster
    except InputError as error:
        return None, error.what
    (kind,) = found.device_types
    return f"{kind}:{found.device_count}", f"{found.device_count} GPUs of type {kind} on this node"


def _text(cluster: str | None, told: str, cores: int) -> str:
    shown = cluster or "H100-80:8x4"
    mark = "" if cluster else "# "
    # More than eight help only on large problems.
    workers = max(2, min(8, cores))
    return f"""\
# Settings of arachne for this project. Flags and the environment overrule this file, and this
# file overrules ~/.config/arachne/arachne.toml. Keys are long options without dashes.
# What is in force, and why:  arachne config show --origin

# The plan database: a file, or for a team postgresql://user@host/database. Without this line
# plans are kept in a file of the user.
# db = "plans.db"

[solve]
# Seconds per plan, and the proven gap at which the search may stop earlier.
time-limit = 10
# gap = 0.03
# Threads of the search; this machine has {cores} cores.
workers = {workers}

[solve.cascade]
# The cluster as TYPE:GPUS-PER-NODExNODES, or a file from arachne cluster import, which reads
# nvidia-smi, Slurm, Kubernetes, Ray and SkyPilot.
# Found here: {told}.
{mark}cluster = "{shown}"

[train]
# Keep a checkpoint every so many iterations.
# checkpoint-every = 50
"""
