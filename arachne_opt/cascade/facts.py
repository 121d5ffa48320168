"""What a group of devices costs, derived once more from the raw data of nodes and links.

Checker and simulator trust neither a solver nor the methods of ``Cluster`` that solvers use, so
they read penalty, hand-off and option from here; a property test holds both against each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from arachne_opt.cascade.problem import CascadeProblem, Option, Task
from arachne_opt.cluster import DeviceType, Link, Node

_MILLION = 1_000_000


class Facts:
    """Look-ups for the devices of one problem, which are numbered through the nodes in order."""

    def __init__(self, problem: CascadeProblem) -> None:
        self._cluster = problem.cluster
        self._node_of: list[int] = []
        self._nic_of: list[int] = []
        for position, node in enumerate(problem.cluster.nodes):
            self._node_of += [position] * len(node.nic_of_device)
            self._nic_of += node.nic_of_device

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self._node_of)

    def node_of(self, device: int) -> int:
        """Position of the node of a device."""
        return self._node_of[device]

    def node(self, device: int) -> Node:
        """The node of a device."""
        return self._cluster.nodes[self._node_of[device]]

    def kinds(self, group: Sequence[int]) -> tuple[DeviceType, ...]:
        """The device types in a group, each once, by name."""
        found = {self.node(d).device_type.name: self.node(d).device_type for d in group}
        return tuple(found[name] for name in sorted(found))

    def node_count(self, group: Sequence[int]) -> int:
        """Number of nodes that a group touches."""
        return len({self._node_of[d] for d in group})

    def penalty_ppm(self, group: Sequence[int]) -> int:
        """Millionths by which a group is slower than on one node: 1 + scale * exp(-decay * o).

        o = NIC groups that every node of the group uses / the most that one node uses.
        """
        used = {(self._node_of[d], self._nic_of[d]) for d in group}
        nodes = {node for node, _ in used}
        if len(nodes) <= 1:
            return _MILLION
        nics = {nic for _, nic in used}
        common = sum(all((node, nic) in used for node in nodes) for nic in nics)
        most = max(sum(1 for other, _ in used if other == node) for node in nodes)
        law = self._cluster.penalty
        return math.ceil(_MILLION * (1 + law.scale * math.exp(-law.decay * (common / most))))

    def duration_us(self, option: Option, group: Sequence[int]) -> int:
        """Time of an option on a group, rounded up to a microsecond."""
        quotient, rest = divmod(option.duration_us * self.penalty_ppm(group), _MILLION)
        return quotient + (rest > 0)

    def handoff_us(self, size_bytes: int, source: Sequence[int], target: Sequence[int]) -> int:
        """Time to move equal slices to each target that is no source, one after the other.

        Each slice comes over the best link from any source; the slowest of these carries all.
        """
        late = [d for d in dict.fromkeys(target) if d not in set(source)]
        if not late or not size_bytes:
            return 0
        links = [self._best_link(source, d) for d in late]
        rate = min(link.bandwidth_bytes_per_s for link in links)
        quotient, rest = divmod(size_bytes * len(late) * _MILLION, len(target) * rate)
        return max(link.latency_us for link in links) + quotient + (rest > 0)

    def option(
        self, task: Task, degree: int, kind: str, *, recompute: bool = False
    ) -> Option | None:
        """The option of a degree that holds on devices of a type and treats activations so."""
        fits = [o for o in task.options if o.degree == degree and o.recompute is recompute]
        return next((o for o in fits if o.device_type is None or o.device_type == kind), None)

    def _best_link(self, source: Sequence[int], device: int) -> Link:
        cluster, home = self._cluster, self._node_of[device]
        if any(self._node_of[s] == home for s in source):
            return cluster.nodes[home].intra_link
        zone = cluster.nodes[home].zone
        zones = sorted({self.node(s).zone for s in source})
        if zone in zones:
            return cluster.inter_link
        named = {frozenset(entry.zones): entry.link for entry in reversed(cluster.zone_links)}
        links = [named.get(frozenset((zone, other)), cluster.inter_link) for other in zones]
        return max(links, key=lambda link: (link.bandwidth_bytes_per_s, -link.latency_us))
