"""The tail of an iteration: gradients are summed over all devices, then the optimizer steps.

Sources of the formulas: a ring moves (n - 1) / n of the data per device in a reduce-scatter, and
again in the all-gather of the new weights (Patarasuk and Yuan 2009, «Bandwidth optimal all-reduce
algorithms»); on several nodes each device first reduces inside its node and then sends its slice
between nodes. The optimizer moves its states once from and to memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.cluster import Cluster, Link
from arachne_opt.units import us_from_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TailVolume:
    """What the tail moves.

    Args:
        gradient_bytes: gradients of the whole model, reduced and scattered.
        weight_bytes: weights of the whole model, gathered after the step.
        update_bytes: what the optimizer reads and writes on one device.
    """

    gradient_bytes: int
    weight_bytes: int
    update_bytes: int


def tail_us(volume: TailVolume, cluster: Cluster) -> int:
    """Time of gradient synchronisation and optimizer step on all devices of a cluster."""
    moved = volume.gradient_bytes + volume.weight_bytes
    seconds = _update_s(volume.update_bytes, cluster)
    if cluster.device_count > 1 and moved:
        seconds += _rings_s(moved, cluster)
    return us_from_seconds(seconds)


def _rings_s(moved: int, cluster: Cluster) -> float:
    """One ring inside each node, then one between the nodes for each device's slice.

    Two passes, of gradients and of weights, share the volume: together they move
    (n - 1) / n * moved per device and take 2 * (n - 1) steps of latency. The smallest node has the
    largest slices and the slowest link sets the pace.
    """
    nodes = len(cluster.nodes)
    inside = min(node.device_count for node in cluster.nodes)
    most = max(node.device_count for node in cluster.nodes)
    seconds = 0.0
    if most > 1:
        seconds += _ring_s(moved, most, _slowest([n.intra_link for n in cluster.nodes]))
    if nodes > 1:
        between = [entry.link for entry in cluster.zone_links]
        seconds += _ring_s(moved / inside, nodes, _slowest([cluster.inter_link, *between]))
    return seconds


def _ring_s(moved: float, members: int, link: Link) -> float:
    share = (members - 1) / members
    latency_s = 2 * (members - 1) * link.latency_us / 1e6
    return moved * share / link.bandwidth_bytes_per_s + latency_s


def _slowest(links: list[Link]) -> Link:
    return min(links, key=lambda link: (link.bandwidth_bytes_per_s, -link.latency_us))


def _update_s(update_bytes: int, cluster: Cluster) -> float:
    speeds = [kind.memory_bandwidth_bytes_per_s for kind in cluster.device_types.values()]
    return max((update_bytes / speed for speed in speeds if speed > 0), default=0.0)
