"""Clusters as files: our TOML and JSON, and a task of SkyPilot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import cluster_to_dict
from arachne_opt.errors import InputError
from arachne_opt.exporters.toml_text import Inline, toml_text

_GIB, _GIGA, _TERA = 2**30, 10**9, 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterText:
    """A cluster in another form, with what that form cannot say."""

    text: str
    lost: tuple[str, ...] = ()


def cluster_toml(cluster: Cluster) -> ClusterText:
    """A file of the form ``arachne.cluster/1`` that ``read_cluster`` reads to an equal cluster."""
    value = cluster_to_dict(cluster)
    tables: dict[str, Any] = {"format": value["format"], "name": value["name"]}
    tables["node"] = [_node(group) for group in value["node"]]
    tables["device_type"] = [_kind(kind) for kind in value["device_type"]]
    tables["inter_link"] = _link(value["inter_link"])
    if "zone_link" in value:
        tables["zone_link"] = [{"zones": z["zones"], **_link(z)} for z in value["zone_link"]]
    tables["penalty"] = value["penalty"]
    return ClusterText(text=toml_text(tables))


def cluster_json(cluster: Cluster) -> ClusterText:
    """The same in JSON."""
    return ClusterText(text=json.dumps(cluster_to_dict(cluster), indent=1) + "\n")


def cluster_skypilot(cluster: Cluster) -> ClusterText:
    """Resources of a task of SkyPilot; all nodes must be equal.

    Raises:
        InputError: nodes differ in type or number of devices.
    """
    kinds = {(node.device_type.name, node.device_count) for node in cluster.nodes}
    if len(kinds) > 1:
        shown = ", ".join(f"{name} x {count}" for name, count in sorted(kinds))
        hint = "one export for the nodes of each kind"
        raise InputError(f"a task of SkyPilot has equal nodes, these are {shown}", hint=hint)
    ((name, count),) = kinds
    if name not in _SKY_NAMES:
        what = f"SkyPilot has no name for {name}"
        raise InputError(what, hint=f"a cluster of {', '.join(_SKY_NAMES)}")
    lines = ["resources:", f"  accelerators: {_SKY_NAMES[name]}:{count}"]
    lines.append(f"num_nodes: {len(cluster.nodes)}")
    lost = ["names of nodes, NIC groups, NUMA domains, links and the penalty"]
    if len({node.zone for node in cluster.nodes}) > 1:
        lost.append("zones: the nodes of a task stand in one")
    return ClusterText(text="\n".join(lines) + "\n", lost=tuple(lost))


_SKY_NAMES = {
    "V100-16": "V100",
    "V100-32": "V100-32GB",
    "T4": "T4",
    "L4": "L4",
    "L40S": "L40S",
    "A10G": "A10G",
    "A100-40": "A100",
    "A100-80": "A100-80GB",
    "H100-80": "H100",
    "H200-141": "H200",
    "GH-96": "GH200",
    "B200": "B200",
    "RTX-3090": "RTX3090",
    "RTX-4090": "RTX4090",
    "MI300X": "MI300X",
}

CLUSTER_TEXTS: Mapping[str, Callable[[Cluster], ClusterText]] = MappingProxyType(
    {"toml": cluster_toml, "json": cluster_json, "skypilot": cluster_skypilot}
)


def _node(group: Mapping[str, Any]) -> dict[str, Any]:
    return {**group, "intra_link": Inline(_link(group["intra_link"]))}


def _kind(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": kind["name"],
        "memory": _unit(kind["memory"], _GIB, "GiB"),
        "peak_flops": _unit(kind["peak_flops"], _TERA, "TFLOP/s"),
        "memory_bandwidth": _unit(kind["memory_bandwidth"], _GIGA, "GB/s"),
    }


def _link(link: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "bandwidth": _unit(link["bandwidth"], _GIGA, "GB/s"),
        "latency": f"{link['latency']} us",
    }


def _unit(value: int, unit: int, name: str) -> int | str:
    """A quantity with its unit where that is exact to a tenth, else the plain number."""
    tenths, rest = divmod(10 * value, unit)
    if rest:
        return value
    return f"{tenths // 10}.{tenths % 10} {name}" if tenths % 10 else f"{tenths // 10} {name}"
