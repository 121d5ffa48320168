"""Clusters: nodes of devices, their NIC groups, links and the price of leaving a node."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.units import PPM, US_PER_S

# Fitted on a public artifact (woshipapa/Arachne_artifact @ 2e35a9b, TopologyModel.py).
PUBLIC_PENALTY_SCALE = 0.21138606119414527
PUBLIC_PENALTY_DECAY = 1.4790472808157773


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection between two devices or nodes."""

    bandwidth_bytes_per_s: int
    latency_us: int = 0

    def __post_init__(self) -> None:
        if self.bandwidth_bytes_per_s <= 0 or self.latency_us < 0:
            raise InputError(f"a link needs a positive bandwidth and a latency >= 0, not {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """One kind of accelerator; peak figures are the vendor's dense half-precision ones."""

    name: str
    memory_bytes: int
    peak_flops_per_s: int
    memory_bandwidth_bytes_per_s: int

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a device type needs a name")
        if self.memory_bytes <= 0 or self.peak_flops_per_s <= 0:
            raise InputError(f"device type {self.name}: memory and peak must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host with devices of one type.

    Args:
        nic_of_device: NIC group of each device by its local index; its length is the number of
            devices. Groups of equal number on different nodes reach each other over one rail.
        numa_of_nic: NUMA domain of each NIC group.
    """

    name: str
    device_type: DeviceType
    nic_of_device: tuple[int, ...]
    numa_of_nic: tuple[int, ...]
    intra_link: Link
    zone: str = "default"

    def __post_init__(self) -> None:
        if not self.nic_of_device:
            raise InputError("a node needs at least one device", where=f"node {self.name}")
        if not all(0 <= nic < len(self.numa_of_nic) for nic in self.nic_of_device):
            what = f"devices use NIC groups {sorted(set(self.nic_of_device))}, but NUMA domains"
            what += f" are given for {len(self.numa_of_nic)} groups"
            raise InputError(what, where=f"node {self.name}")

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self.nic_of_device)

    def signature(self) -> list[Any]:
        """All that distinguishes this node from another but its name, as JSON values."""
        kind, link = self.device_type, self.intra_link
        return [
            [kind.name, kind.memory_bytes, kind.peak_flops_per_s],
            [kind.memory_bandwidth_bytes_per_s],
            list(self.nic_of_device),
            list(self.numa_of_nic),
            [link.bandwidth_bytes_per_s, link.latency_us],
            self.zone,
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneLink:
    """The link between two zones."""

    zones: tuple[str, str]
    link: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPenalty:
    """Slow-down of a group that spans nodes: 1 + scale * exp(-decay * overlap).

    Overlap is the number of NIC groups used on every node of the group over the largest number
    used on one of them. Source of the form and the default fit: see PUBLIC_PENALTY_SCALE.
    """

    scale: float = PUBLIC_PENALTY_SCALE
    decay: float = PUBLIC_PENALTY_DECAY

    def __post_init__(self) -> None:
        if not (0 <= self.scale < 1000 and 0 <= self.decay < 1000):
            raise InputError(f"the penalty needs scale and decay between 0 and 1000, not {self}")

    def ppm(self, overlap: float) -> int:
        """Factor in millionths, rounded up, for a group over several nodes."""
        return math.ceil(PPM * (1 + self.scale * math.exp(-self.decay * overlap)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, or one CPU process in tests; ``index`` counts through the nodes in order."""

    index: int
    node: int
    local: int
    nic: int
    device_type: DeviceType


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The nodes a job may use. Devices are numbered 0.. through the nodes in order."""

    name: str
    nodes: tuple[Node, ...]
    inter_link: Link
    zone_links: tuple[ZoneLink, ...] = ()
    penalty: TopologyPenalty = field(default_factory=TopologyPenalty)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InputError("a cluster needs at least one node", where=f"cluster {self.name}")
        kinds: dict[str, DeviceType] = {}
        for node in self.nodes:
            if kinds.setdefault(node.device_type.name, node.device_type) != node.device_type:
                what = f"two descriptions of device type {node.device_type.name}"
                raise InputError(what, where=f"node {node.name}")
        zones = {node.zone for node in self.nodes}
        for entry in self.zone_links:
            if not set(entry.zones) <= zones:
                known = ", ".join(sorted(zones))
                raise InputError(f"a zone link names {entry.zones}; the nodes' zones are {known}")
        pairs = [frozenset(entry.zones) for entry in self.zone_links]
        if len(set(pairs)) < len(pairs):
            raise InputError("two links join the same zones", where=f"cluster {self.name}")

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        """All devices in order."""
        rows = [
            (n, local, nic, node.device_type)
            for n, node in enumerate(self.nodes)
            for local, nic in enumerate(node.nic_of_device)
        ]
        return tuple(
            Device(index=i, node=n, local=local, nic=nic, device_type=kind)
            for i, (n, local, nic, kind) in enumerate(rows)
        )

    @property
    def device_count(self) -> int:
        """Number of devices of all nodes."""
        return len(self.devices)

    @cached_property
    def device_types(self) -> dict[str, DeviceType]:
        """Device types in use by name, in the order of the nodes."""
        return {node.device_type.name: node.device_type for node in self.nodes}

    @cached_property
    def count_of_type(self) -> dict[str, int]:
        """Number of devices of each type."""
        counts = dict.fromkeys(self.device_types, 0)
        for node in self.nodes:
            counts[node.device_type.name] += node.device_count
        return counts

    def devices_of_node(self, node: int) -> range:
        """Indices of the devices of a node."""
        first = sum(n.device_count for n in self.nodes[:node])
        return range(first, first + self.nodes[node].device_count)

    def penalty_ppm(self, group: Iterable[int]) -> int:
        """Slow-down of a group of devices in millionths: 1,000,000 on one node."""
        nics: dict[int, set[int]] = {}
        for index in group:
            device = self.devices[index]
            nics.setdefault(device.node, set()).add(device.nic)
        return self.penalty_ppm_of_nics(nics.values())

    def penalty_ppm_of_nics(self, nics: Collection[set[int]]) -> int:
        """The same from the sets of NIC groups used on each node."""
        if len(nics) < 2:
            return PPM
        shared = set.intersection(*map(set, nics))
        return self.penalty.ppm(len(shared) / max(map(len, nics)))

    def handoff_us(
        self, size_bytes: int, producer: Collection[int], consumer: Collection[int]
    ) -> int:
        """Time to bring a result of ``size_bytes`` from one group to another, rounded up.

        Each device of the consumer needs an equal slice; slices of devices that also produced are
        there already. The others move over the slowest link in use, one after the other.
        """
        missing = set(consumer) - set(producer)
        if not missing or size_bytes == 0:
            return 0
        links = [self._nearest_link(device, producer) for device in missing]
        slowest = min(links, key=lambda link: link.bandwidth_bytes_per_s)
        moved = size_bytes * len(missing) * US_PER_S
        latency_us = max(link.latency_us for link in links)
        return latency_us + -(-moved // (len(consumer) * slowest.bandwidth_bytes_per_s))

    def _nearest_link(self, device: int, producer: Collection[int]) -> Link:
        """The best link from any producer to a device: inside a node, inside a zone, between."""
        home = self.devices[device].node
        nodes = {self.devices[p].node for p in producer}
        if home in nodes:
            return self.nodes[home].intra_link
        zones = {self.nodes[n].zone for n in nodes}
        if self.nodes[home].zone in zones:
            return self.inter_link
        between = [self.link_between(zone, self.nodes[home].zone) for zone in zones]
        return max(between, key=lambda link: (link.bandwidth_bytes_per_s, -link.latency_us))

    def link_between(self, a: str, b: str) -> Link:
        """The link of two zones: their own, else that of all nodes."""
        for entry in self.zone_links:
            if set(entry.zones) == {a, b}:
                return entry.link
        return self.inter_link

    def canonical(self) -> dict[str, Any]:
        """JSON values that are equal for clusters that differ in names and node order only."""
        links = [
            [sorted(z.zones), z.link.bandwidth_bytes_per_s, z.link.latency_us]
            for z in self.zone_links
        ]
        return {
            "nodes": sorted(node.signature() for node in self.nodes),
            "inter_link": [self.inter_link.bandwidth_bytes_per_s, self.inter_link.latency_us],
            "zone_links": sorted(links),
            "penalty": [self.penalty.scale, self.penalty.decay],
        }

    def canonical_node_order(self) -> tuple[int, ...]:
        """Node indices in the order of their signatures; equal nodes keep their order."""
        return tuple(sorted(range(len(self.nodes)), key=lambda n: self.nodes[n].signature()))
