"""What importers of clusters find out about nodes, and the cluster that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from arachne_opt.cluster import Cluster, DeviceType, Link, Node
from arachne_opt.cluster_file import default_nics, default_numa
from arachne_opt.device_types import default_inter_link, default_intra_link
from arachne_opt.errors import InputError
from arachne_opt.importers.gpu_names import gpu_type

_SHOWN = 5
# PCIe 4.0 with 16 lanes: what a node without NVLink has at least.
PCIE = Link(bandwidth_bytes_per_s=32_000_000_000, latency_us=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node with devices of one type, as a file describes it.

    Args:
        where: what mentions it.
        gpu: name of the type in that file.
        nics: NIC group of every device; None where that is not known.
        numa: NUMA domain of every NIC group.
    """

    where: str
    name: str
    gpu: str
    devices: int
    memory_bytes: int | None = None
    zone: str = "default"
    nics: tuple[int, ...] | None = None
    numa: tuple[int, ...] | None = None
    link: Link | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to import a cluster.

    Args:
        name: of the cluster.
        types: device types by the names of the file, in lower case.
        copies: so many nodes are like each one that is described.
    """

    name: str = "cluster"
    types: Mapping[str, DeviceType] = field(default_factory=dict)
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedCluster:
    """A cluster, with what was assumed and left out."""

    cluster: Cluster
    notes: tuple[str, ...] = ()


def cluster_of(
    facts: Sequence[NodeFacts], options: ClusterOptions, notes: Iterable[str] = (), *, where: str
) -> ImportedCluster:
    """The cluster of some nodes.

    Raises:
        InputError: there is none, or a type is not known; says where.
    """
    if not facts:
        left = "; ".join(notes)
        what = f"there is no node with GPUs{': ' + left if left else ''}"
        raise InputError(what, where=where, hint="a cluster that has some")
    remarks = list(dict.fromkeys(notes))
    nodes: list[Node] = []
    for fact in facts:
        kind, assumed = _kind(fact, options)
        if assumed and assumed not in remarks:
            remarks.append(assumed)
        names = _names(fact.name, options.copies)
        nodes += [_node(fact, kind, name) for name in names]
    if any(fact.nics is None for fact in facts):
        remarks.append("NIC groups and NUMA domains are the usual ones, not measured")
    kinds = {node.device_type.name: node.device_type for node in nodes}
    remarks.append("the network between nodes is the usual one for the slowest type")
    cluster = Cluster(
        name=options.name, nodes=_distinct(nodes), inter_link=default_inter_link(kinds)
    )
    return ImportedCluster(cluster=cluster, notes=tuple(remarks))


def few(names: Sequence[str]) -> str:
    """Names for people, the first ones of many."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown}, …"


def _kind(fact: NodeFacts, options: ClusterOptions) -> tuple[DeviceType, str]:
    try:
        return gpu_type(fact.gpu, memory_bytes=fact.memory_bytes, chosen=options.types)
    except InputError as error:
        raise InputError(error.what, where=fact.where, hint=error.hint) from error


def _names(name: str, copies: int) -> list[str]:
    return [name] if copies == 1 else [f"{name}-{i}" for i in range(copies)]


def _node(fact: NodeFacts, kind: DeviceType, name: str) -> Node:
    nics = fact.nics or default_nics(fact.devices)
    numa = fact.numa or default_numa(max(nics) + 1)
    return Node(
        name=name,
        device_type=kind,
        nic_of_device=nics,
        numa_of_nic=numa,
        intra_link=fact.link or _usual_link(kind),
        zone=fact.zone,
    )


def _usual_link(kind: DeviceType) -> Link:
    """The link of a type, or of the one that it is like but for its memory."""
    own = default_intra_link(kind.name)
    if own is None and "-" in kind.name:
        own = default_intra_link(gpu_type(kind.name.rpartition("-")[0])[0].name)
    return own or PCIE


def _distinct(nodes: Sequence[Node]) -> tuple[Node, ...]:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            what = f"two nodes are called {node.name!r}"
            raise InputError(what, hint="another name for one of them")
        seen.add(node.name)
    return tuple(nodes)
