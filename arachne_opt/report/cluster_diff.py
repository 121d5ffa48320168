"""What differs between two clusters, in words."""

from __future__ import annotations

from collections import Counter

from arachne_opt.cluster import Cluster, Link, Node
from arachne_opt.units import format_bytes


def cluster_changes(a: Cluster, b: Cluster) -> list[str]:
    """A line per change from one cluster to the other, none where they are the same but names."""
    before, after = (Counter(map(_kind, c.nodes)) for c in (a, b))
    lines = [_nodes("loses", kind, n) for kind, n in sorted((before - after).items())]
    lines += [_nodes("gains", kind, n) for kind, n in sorted((after - before).items())]
    if a.inter_link != b.inter_link:
        lines.append(f"links between nodes: {_link(a.inter_link)} → {_link(b.inter_link)}")
    zones = [{tuple(sorted(z.zones)): z.link for z in c.zone_links} for c in (a, b)]
    for pair in sorted({*zones[0], *zones[1]}):
        old, new = zones[0].get(pair), zones[1].get(pair)
        if old != new:
            lines.append(f"link between zones {' and '.join(pair)}: {_link(old)} → {_link(new)}")
    if a.penalty != b.penalty:
        old_new = [f"scale {c.penalty.scale:g}, decay {c.penalty.decay:g}" for c in (a, b)]
        lines.append(f"penalty of groups over several nodes: {old_new[0]} → {old_new[1]}")
    return lines


def _kind(node: Node) -> tuple[str, ...]:
    """A node in words, so detailed that nodes of equal words are equal."""
    kind = node.device_type
    words = [f"{node.device_count} x {kind.name}", format_bytes(kind.memory_bytes)]
    words.append(f"{kind.peak_flops_per_s:.3g} FLOP/s")
    words.append(f"inside {_link(node.intra_link)}")
    words.append(f"NIC groups {' '.join(map(str, node.nic_of_device))}")
    words.append(f"NUMA {' '.join(map(str, node.numa_of_nic))}")
    words.append(f"{kind.memory_bandwidth_bytes_per_s:.3g} B/s")
    return (*words, f"zone {node.zone}")


def _nodes(verb: str, kind: tuple[str, ...], count: int) -> str:
    noun = "node" if count == 1 else "nodes"
    zone = "" if kind[-1] == "zone default" else f", {kind[-1]}"
    return f"{verb} {count} {noun} of {kind[0]} ({', '.join(kind[1:5])}{zone})"


def _link(link: Link | None) -> str:
    if link is None:
        return "none"
    return f"{format_bytes(link.bandwidth_bytes_per_s)}/s + {link.latency_us} us"
