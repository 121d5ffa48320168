"""The cluster for the page: nodes with their devices, and what goes between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from arachne_opt.cluster import Cluster
from arachne_opt.units import format_bytes

# Links beyond these are counted, not drawn.
_MOST_LINKS = 400
# A group over more nodes is drawn as a ring: all pairs would be too many.
_MOST_PAIRED_NODES = 4


@dataclass(slots=True)
class Links:
    """Traffic between nodes: how many groups or messages, and for how long."""

    number: Counter[tuple[int, int]] = field(default_factory=Counter)
    busy_us: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, a: int, b: int, duration_us: int) -> None:
        """Something that goes between two different nodes."""
        pair = (min(a, b), max(a, b))
        self.number[pair] += 1
        self.busy_us[pair] += duration_us

    def add_group(self, nodes: Iterable[int], duration_us: int) -> None:
        """A group that spans nodes: all pairs, or a ring of many."""
        spanned = sorted(set(nodes))
        if len(spanned) <= _MOST_PAIRED_NODES:
            pairs = list(combinations(spanned, 2))
        else:
            pairs = list(zip(spanned, [*spanned[1:], spanned[0]], strict=True))
        for a, b in pairs:
            self.add(a, b, duration_us)


def cluster_json(cluster: Cluster, links: dict[str, Links]) -> dict[str, Any]:
    """Nodes, devices by node, and links by kind, the busiest first.

    Args:
        cluster: the nodes.
        links: by kind of traffic, such as ``groups`` or ``hand-offs``.
    """
    rows: list[dict[str, Any]] = []
    total = 0
    for kind, found in links.items():
        total += len(found.number)
        rows += [
            {"kind": kind, "a": a, "b": b, "count": n, "busy_us": found.busy_us[a, b]}
            for (a, b), n in found.number.items()
        ]
    rows.sort(key=lambda row: (-row["busy_us"], row["a"], row["b"]))
    return {
        "nodes": [
            {
                "name": node.name,
                "type": node.device_type.name,
                "zone": node.zone,
                "memory": format_bytes(node.device_type.memory_bytes),
                "devices": node.device_count,
            }
            for node in cluster.nodes
        ],
        "links": rows[:_MOST_LINKS],
        "link_count": total,
    }


def rows_json(
    cluster: Cluster, order: Sequence[int], group_of: Sequence[int], groups: Sequence[str]
) -> dict[str, Any]:
    """A row per device.

    Args:
        cluster: the devices.
        order: device of each row.
        group_of: group of each row; rows of a group stand together.
        groups: names of the groups.
    """
    return {
        "device": list(order),
        "group": list(group_of),
        "groups": list(groups),
        "capacity": [cluster.devices[d].device_type.memory_bytes for d in order],
    }
