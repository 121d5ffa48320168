"""Pools of devices in short: ``A100-40=32,V100-16=96`` or, node by node, ``A100-40=8+4+2+1``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from arachne_opt.cluster import Cluster, DeviceType, Node
from arachne_opt.cluster_file import default_nics, default_numa
from arachne_opt.device_types import default_inter_link, default_intra_link, device_type
from arachne_opt.errors import InputError

USUAL_GPUS_PER_NODE = 4
_ENTRY = re.compile(r"(?:(?P<zone>[\w.-]+)/)?(?P<type>[A-Za-z][\w.-]*)=(?P<counts>[^=]+)")
_HINT = '"A100-40=32,V100-16=96" or, node by node, "A100-40=8+4+2+1"'


def parse_pool(
    text: str,
    gpus_per_node: int | str | Mapping[str, int] = USUAL_GPUS_PER_NODE,
    *,
    zone: str = "default",
    types: Mapping[str, DeviceType] | None = None,
) -> Cluster:
    """The cluster of a pool of devices.

    Args:
        text: comma-separated ``type=count`` or ``type=n+n+…`` with the devices of every node;
            ``zone/type=count`` puts them into a zone.
        gpus_per_node: into nodes of this size a count is cut: one number for all, or by type
            (a mapping, or a text such as ``A100-40=8,V100-16=4``).
        zone: zone of the entries that name none.
        types: own device types, which go before the public data sheets.

    Raises:
        InputError: an unknown type, or a count that is not a positive number.
    """
    sizes = _node_sizes(gpus_per_node)
    nodes: list[Node] = []
    for part in text.split(","):
        match = _ENTRY.fullmatch(part.strip())
        if match is None:
            raise InputError(f"cannot read the devices {part.strip()!r}", hint=_HINT)
        name = match["type"]
        kind = (types or {}).get(name) or device_type(name, where=f"cluster {text!r}")
        counts = [_count(n, part.strip()) for n in match["counts"].split("+")]
        if len(counts) == 1:
            counts = _cut(counts[0], sizes.get(name, sizes.get("", USUAL_GPUS_PER_NODE)))
        nodes += _nodes(kind, counts, match["zone"] or zone, len(nodes))
    inter = default_inter_link({n.device_type.name: None for n in nodes})
    return Cluster(name=text.replace(" ", ""), nodes=tuple(nodes), inter_link=inter)


def pool_text(cluster: Cluster) -> str:
    """The pool of a cluster, with every node's devices: what ``parse_pool`` reads back."""
    found: dict[tuple[str, str], list[int]] = {}
    for node in cluster.nodes:
        found.setdefault((node.zone, node.device_type.name), []).append(node.device_count)
    parts = []
    for (zone, name), sizes in found.items():
        head = name if zone == "default" else f"{zone}/{name}"
        parts.append(f"{head}={'+'.join(map(str, sizes))}")
    return ",".join(parts)


def _node_sizes(given: int | str | Mapping[str, int]) -> dict[str, int]:
    """Devices per node by type; the key ``""`` holds for all others."""
    if isinstance(given, str):
        parts = [part.strip().rpartition("=") for part in given.split(",") if part.strip()]
        return {name: _count(size, f"gpus per node {given!r}") for name, _, size in parts}
    sizes = {"": given} if isinstance(given, int) else dict(given)
    for name, size in sizes.items():
        _count(str(size), f"gpus per node of {name or 'every type'}")
    return sizes


def _count(text: str, where: str) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no number of devices", where=where, hint=_HINT) from error
    if value < 1:
        raise InputError(f"a number of devices must be positive, not {value}", where=where)
    return value


def _cut(count: int, size: int) -> list[int]:
    full, rest = divmod(count, size)
    return [size] * full + [rest] * (rest > 0)


def _nodes(kind: DeviceType, counts: list[int], zone: str, first: int) -> list[Node]:
    link = default_intra_link(kind.name)
    if link is None:
        what = f"no usual link is known for device type {kind.name!r}"
        raise InputError(what, hint="a cluster file with [node.intra_link]")
    return [
        Node(
            name=f"node{first + i}",
            device_type=kind,
            nic_of_device=default_nics(count),
            numa_of_nic=default_numa(max(default_nics(count)) + 1),
            intra_link=link,
            zone=zone,
        )
        for i, count in enumerate(counts)
    ]
