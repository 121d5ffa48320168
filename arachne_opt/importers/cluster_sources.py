"""All formats of clusters by name, and which one a file is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from arachne_opt.cluster_file import CLUSTER_FORMAT, cluster_from_dict
from arachne_opt.importers import kubernetes, nvidia_smi, ray_cluster, skypilot, slurm
from arachne_opt.importers.cluster_facts import (
    ClusterOptions,
    ImportedCluster,
    NodeFacts,
    cluster_of,
)
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.node import read_text
from arachne_opt.importers.nvidia_topology import Topology
from arachne_opt.importers.sniff import recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFormat:
    """A format of clusters.

    Args:
        about: what a user has of it.
        recognise: why a file looks like it, empty where it does not.
    """

    about: str
    recognise: Callable[[Path], str]
    read: Callable[[Path, ClusterOptions], ImportedCluster]


def read_nvidia_smi(
    sources: Sequence[Path], options: ClusterOptions, topology: Topology | None = None
) -> ImportedCluster:
    """The cluster of some nodes, each with its own output."""
    facts: list[NodeFacts] = []
    notes: list[str] = []
    for source in sources:
        found, more = read_node_file(source, topology)
        facts.append(found)
        notes += more
    return cluster_of(facts, options, notes, where=str(sources[0]))


def read_node_file(source: Path, topology: Topology | None) -> tuple[NodeFacts, tuple[str, ...]]:
    """The node of a file, by the name of the file."""
    return nvidia_smi.read_node(read_text(source), str(source), source.stem, topology)


def _is_ours(source: Path) -> str:
    if source.suffix.lower() != ".json" or not source.is_file():
        return ""
    return f"the format {CLUSTER_FORMAT}" if f'"{CLUSTER_FORMAT}"' in read_text(source) else ""


def _read_ours(source: Path, options: ClusterOptions) -> ImportedCluster:
    del options
    return ImportedCluster(cluster=cluster_from_dict(read_json_file(source).value, str(source)))


CLUSTER_FORMATS: Mapping[str, ClusterFormat] = MappingProxyType(
    {
        "arachne": ClusterFormat(
            about="JSON of arachne cluster show", recognise=_is_ours, read=_read_ours
        ),
        "nvidia-smi": ClusterFormat(
            about="CSV of --query-gpu, or XML of -q -x",
            recognise=nvidia_smi.recognise,
            read=lambda source, options: read_nvidia_smi([source], options),
        ),
        "slurm": ClusterFormat(
            about="text of scontrol show node or job", recognise=slurm.recognise, read=slurm.read
        ),
        "kubernetes": ClusterFormat(
            about="JSON of kubectl get nodes", recognise=kubernetes.recognise, read=kubernetes.read
        ),
        "ray": ClusterFormat(
            about="JSON of ray list nodes, or text of ray status -v",
            recognise=ray_cluster.recognise,
            read=ray_cluster.read,
        ),
        "skypilot": ClusterFormat(
            about="YAML of a task", recognise=skypilot.recognise, read=skypilot.read
        ),
    }
)


def recognise_cluster(source: Path) -> tuple[str, str]:
    """Name of the format of a cluster, and what it was recognised by.

    Raises:
        InputError: it is in no known format, or cannot be read.
    """
    tests = {name: (entry.recognise, entry.about) for name, entry in CLUSTER_FORMATS.items()}
    return recognised(source, tests)
