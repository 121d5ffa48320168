"""Cluster files (TOML, ``arachne.cluster/1``) and shorthand such as ``H100-80:8x4``."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arachne_opt.cluster import Cluster, DeviceType, Link, Node, TopologyPenalty, ZoneLink
from arachne_opt.device_types import (
    DEVICE_TYPES,
    default_inter_link,
    default_intra_link,
    device_type,
)
from arachne_opt.errors import InputError
from arachne_opt.fields import Fields
from arachne_opt.suggest import did_you_mean
from arachne_opt.units import parse_bandwidth, parse_bytes, parse_flops, parse_time_us

CLUSTER_FORMAT = "arachne.cluster/1"

_TOP = ("format", "name", "node", "device_type", "inter_link", "zone_link", "penalty")
_NODE = ("name", "count", "device_type", "devices", "memory", "nics", "numa", "intra_link", "zone")
_TYPE = ("name", "memory", "peak_flops", "memory_bandwidth")
_LINK = ("bandwidth", "latency")

_GROUP = re.compile(r"([A-Za-z][\w.-]*):(\d+)(?:[x×](\d+))?")
_SHORTHAND_HINT = '"H100-80:8x4" (4 nodes of 8), "H100-80:8x4, A100-80:8x2", or a TOML file'

_log = logging.getLogger(__name__)


def read_cluster(path_or_shorthand: str) -> Cluster:
    """The cluster of a TOML file or of a shorthand.

    Raises:
        InputError: the file cannot be read or used; says where and what was probably meant.
    """
    path = Path(path_or_shorthand)
    is_name = path.suffix.lower() == ".toml" or "/" in path_or_shorthand
    if is_name or path.is_file():
        return _read_file(path)
    return parse_shorthand(path_or_shorthand)


def parse_shorthand(text: str) -> Cluster:
    """The cluster of a shorthand: ``type:devices`` or ``type:devices x nodes``, comma-separated."""
    groups = []
    for part in text.split(","):
        match = _GROUP.fullmatch(re.sub(r"[\s\"']", "", part))
        if match is None:
            what = f"{part.strip()!r} is neither a file nor a cluster shorthand"
            raise InputError(what, hint=_SHORTHAND_HINT)
        kind, devices, count = match[1], int(match[2]), int(match[3] or 1)
        groups.append({"device_type": kind, "devices": devices, "count": count})
    value = {"format": CLUSTER_FORMAT, "name": " ".join(text.split()), "node": groups}
    return cluster_from_dict(value, f"cluster {text!r}")


def cluster_from_dict(value: object, where: str) -> Cluster:
    """The cluster that a TOML file or a JSON object describes.

    Args:
        value: tables of the file.
        where: the file, for messages.
    """
    try:
        return _cluster(Fields(value, where, _TOP))
    except InputError as error:
        if error.where and error.where.startswith(where):
            raise
        place = f"{where}: {error.where}" if error.where else where
        raise InputError(error.what, where=place, hint=error.hint) from error


def cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    """Tables that ``cluster_from_dict`` reads back to an equal cluster."""
    types = [
        {
            "name": kind.name,
            "memory": kind.memory_bytes,
            "peak_flops": kind.peak_flops_per_s,
            "memory_bandwidth": kind.memory_bandwidth_bytes_per_s,
        }
        for kind in cluster.device_types.values()
    ]
    value: dict[str, Any] = {
        "format": CLUSTER_FORMAT,
        "name": cluster.name,
        "device_type": types,
        "node": _groups(cluster.nodes),
        "inter_link": _link_dict(cluster.inter_link),
        "penalty": {"scale": cluster.penalty.scale, "decay": cluster.penalty.decay},
    }
    if cluster.zone_links:
        value["zone_link"] = [
            {"zones": list(entry.zones), **_link_dict(entry.link)} for entry in cluster.zone_links
        ]
    return value


def _read_file(path: Path) -> Cluster:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the cluster file: {error}", where=str(path)) from error
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"no valid TOML: {error}", where=str(path)) from error
    return cluster_from_dict({"name": path.stem, **value}, str(path))


def _cluster(top: Fields) -> Cluster:
    top.require_format(CLUSTER_FORMAT)
    own = _own_types(top)
    groups = top.items("node")
    if not groups:
        raise InputError("no [[node]] is given; a cluster needs at least one", where=top.where)
    nodes: list[Node] = []
    for number, group in enumerate(groups, 1):
        nodes += _node_group(Fields(group, f"{top.where}: node {number}", _NODE), own, len(nodes))
    _require_distinct(nodes, top.where)
    types = {node.device_type.name: node.device_type for node in nodes}
    inter = default_inter_link(types)
    if "inter_link" in top:
        inter = _link(Fields(top.raw("inter_link"), top.place("inter_link"), _LINK), inter)
    return Cluster(
        name=top.text("name", "cluster"),
        nodes=tuple(nodes),
        inter_link=inter,
        zone_links=_zone_links(top, {node.zone for node in nodes}, inter),
        penalty=_penalty(top),
    )


def _own_types(top: Fields) -> dict[str, DeviceType]:
    """Device types that the file describes itself; they go before public ones of that name."""
    own: dict[str, DeviceType] = {}
    for number, raw in enumerate(top.items("device_type"), 1):
        entry = Fields(raw, f"{top.where}: device_type {number}", _TYPE)
        name = entry.text("name")
        kind = DeviceType(
            name=name,
            memory_bytes=entry.quantity("memory", parse_bytes),
            peak_flops_per_s=entry.quantity("peak_flops", parse_flops),
            memory_bandwidth_bytes_per_s=entry.quantity("memory_bandwidth", parse_bandwidth),
        )
        if name in own:
            raise InputError(f"device type {name!r} is described twice", where=top.where)
        if DEVICE_TYPES.get(name, kind) != kind:
            _log.info("%s: device type %s replaces the public data sheet", top.where, name)
        own[name] = kind
    return own


def _node_group(group: Fields, own: dict[str, DeviceType], first: int) -> list[Node]:
    """The nodes of one ``[[node]]`` table; ``first`` is the number of the first one."""
    kind = _kind_of(group, own)
    devices = group.integer("devices", minimum=1)
    nics = group.integers("nics") if "nics" in group else default_nics(devices)
    if len(nics) != devices:
        what = f"names the NIC group of {len(nics)} devices, but the node has {devices}"
        raise InputError(what, where=group.place("nics"))
    numa = group.integers("numa") if "numa" in group else default_numa(max(nics) + 1)
    if len(numa) <= max(nics):
        what = f"{len(numa)} NUMA domains for {max(nics) + 1} NIC groups"
        raise InputError(what, where=group.place("numa"), hint="one number per NIC group")
    intra, zone = _intra_link(group, kind), group.text("zone", "default")
    count = group.integer("count", 1, minimum=1)
    names = [f"node{first + i}" for i in range(count)]
    if "name" in group:
        name = group.text("name")
        names = [f"{name}-{i}" for i in range(count)] if count > 1 else [name]
    return [
        Node(
            name=name,
            device_type=kind,
            nic_of_device=nics,
            numa_of_nic=numa,
            intra_link=intra,
            zone=zone,
        )
        for name in names
    ]


def default_nics(devices: int) -> tuple[int, ...]:
    """NIC group of each device of a node: neighbours share one, four groups at most."""
    return tuple(local % 8 // 2 for local in range(devices))


def default_numa(groups: int) -> tuple[int, ...]:
    """NUMA domain of each NIC group: the first half on domain 0, the others on 1."""
    return tuple(int(2 * group >= groups and groups > 1) for group in range(groups))


def _kind_of(group: Fields, own: dict[str, DeviceType]) -> DeviceType:
    name, where = group.text("device_type"), group.place("device_type")
    if name in own:
        kind = own[name]
    elif name not in DEVICE_TYPES and (near := did_you_mean(name, own)):
        raise InputError(f"unknown device type {name!r}{near}", where=where)
    else:
        kind = device_type(name, where=where)
    if "memory" not in group:
        return kind
    memory = group.quantity("memory", parse_bytes)
    return DeviceType(
        name=kind.name,
        memory_bytes=memory,
        peak_flops_per_s=kind.peak_flops_per_s,
        memory_bandwidth_bytes_per_s=kind.memory_bandwidth_bytes_per_s,
    )


def _intra_link(group: Fields, kind: DeviceType) -> Link:
    default = default_intra_link(kind.name)
    if "intra_link" in group:
        entry = Fields(group.raw("intra_link"), group.place("intra_link"), _LINK)
        return _link(entry, default)
    if default is None:
        what = f"no usual link is known for device type {kind.name!r}"
        hint = 'intra_link = {bandwidth = "32 GB/s"}'
        raise InputError(what, where=group.place("intra_link"), hint=hint)
    return default


def _link(entry: Fields, default: Link | None) -> Link:
    """A link; a latency that is left out is that of the usual link."""
    usual_us = default.latency_us if default else 0
    return Link(
        bandwidth_bytes_per_s=entry.quantity("bandwidth", parse_bandwidth),
        latency_us=entry.quantity("latency", parse_time_us, usual_us, minimum=0),
    )


def _zone_links(top: Fields, zones: set[str], default: Link) -> tuple[ZoneLink, ...]:
    links: list[ZoneLink] = []
    for number, raw in enumerate(top.items("zone_link"), 1):
        entry = Fields(raw, f"{top.where}: zone_link {number}", ("zones", *_LINK))
        pair = entry.items("zones")
        if len(pair) != 2 or not all(isinstance(zone, str) for zone in pair) or pair[0] == pair[1]:
            what = f"expected the names of two different zones, found {pair!r}"
            raise InputError(what, where=entry.place("zones"))
        for zone in pair:
            if zone not in zones:
                what = f"no node is in zone {zone!r}{did_you_mean(zone, zones)}"
                raise InputError(what, where=entry.place("zones"))
        if any(set(link.zones) == set(pair) for link in links):
            what = f"the zones {pair[0]!r} and {pair[1]!r} are linked twice"
            raise InputError(what, where=entry.where)
        links.append(ZoneLink(zones=(pair[0], pair[1]), link=_link(entry, default)))
    return tuple(links)


def _penalty(top: Fields) -> TopologyPenalty:
    default = TopologyPenalty()
    if "penalty" not in top:
        return default
    entry = Fields(top.raw("penalty"), top.place("penalty"), ("scale", "decay"))
    return TopologyPenalty(
        scale=entry.number("scale", default.scale), decay=entry.number("decay", default.decay)
    )


def _require_distinct(nodes: Iterable[Node], where: str) -> None:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            hint = "another name for one of the groups"
            raise InputError(f"two nodes are called {node.name!r}", where=where, hint=hint)
        seen.add(node.name)


def _groups(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Tables of the nodes; runs of equal nodes with numbered names become one table."""
    groups: list[dict[str, Any]] = []
    at = 0
    while at < len(nodes):
        length, name = _run(nodes, at)
        group: dict[str, Any] = {"count": length} if length > 1 else {}
        if name is not None:
            group["name"] = name
        groups.append(group | _node_dict(nodes[at]))
        at += length
    return groups


def _run(nodes: Sequence[Node], at: int) -> tuple[int, str | None]:
    """Length and name of the longest group that starts at a node; no name for default names."""
    same = at
    while same < len(nodes) and nodes[same].signature() == nodes[at].signature():
        same += 1
    run = [node.name for node in nodes[at:same]]
    prefix = run[0].removesuffix("-0") if run[0].endswith("-0") else None
    plain = _matching(run, [f"node{at + i}" for i in range(len(run))])
    numbered = _matching(run, [f"{prefix}-{i}" for i in range(len(run))]) if prefix else 0
    if plain:
        return plain, None
    return (numbered, prefix) if numbered > 1 else (1, run[0])


def _matching(found: Sequence[str], expected: Sequence[str]) -> int:
    """Length of the common head."""
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a != b:
            return i
    return len(found)


def _node_dict(node: Node) -> dict[str, Any]:
    return {
        "device_type": node.device_type.name,
        "devices": node.device_count,
        "nics": list(node.nic_of_device),
        "numa": list(node.numa_of_nic),
        "intra_link": _link_dict(node.intra_link),
        "zone": node.zone,
    }


def _link_dict(link: Link) -> dict[str, int]:
    return {"bandwidth": link.bandwidth_bytes_per_s, "latency": link.latency_us}
