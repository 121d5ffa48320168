"""What it takes to go from one pipeline plan to another: bytes that move, and time over the links.

A device holds the weights and the optimizer state of its rows. A replica finds a row where a
replica of the old plan with the same tp held it on the same node; it re-shards one that was held
with another tp, copies one that another replica of its node has, and gets all others over the
network. Every node sends and receives at once; who has received a row sends it on, so that no
node sends a row twice while others could.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from arachne_opt.pipeline.cluster_change import NodeKey
from arachne_opt.pipeline.plan import PipelinePlan, ReplicaKind, Stage
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.tables import Curve, Port

_MESSAGE_BYTES = 50e6  # a usual message of a bulk copy, to read bandwidths


class Shard(NamedTuple):
    """A row as one replica holds it: its tensor-parallel degree, and the spread of its experts."""

    row: int
    tp: int
    ep: int


# What nodes hold, by node: how many replicas hold a row in a way.
Holdings = Mapping[NodeKey, "Counter[Shard]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayout:
    """The price of a change of plans.

    Args:
        network_bytes: weights and optimizer state that go from node to node.
        inside_bytes: the same inside nodes, copied or cut anew.
        lost_bytes: rows of which no copy is left; they come from a checkpoint, at the rate of the
            cluster's link between nodes.
        lost_rows: those rows.
        replicas: replicas that get something.
        seconds: until the last node has all.
    """

    network_bytes: float = 0.0
    inside_bytes: float = 0.0
    lost_bytes: float = 0.0
    lost_rows: tuple[int, ...] = ()
    replicas: int = 0
    seconds: float = 0.0


def holdings(plan: PipelinePlan, nodes: Mapping[NodeKey, NodeKey] | None = None) -> Holdings:
    """What the nodes of a placed plan hold; with ``nodes`` only those, under their new names."""
    found: dict[NodeKey, Counter[Shard]] = {}
    for _, _, stage in plan.stages():
        for replica in stage.replicas:
            assert replica.node is not None  # asked for placed plans only
            key: NodeKey | None = (replica.kind.device_type, replica.node)
            if nodes is not None:
                key = nodes.get((replica.kind.device_type, replica.node))
            if key is not None:
                found.setdefault(key, Counter()).update(_shards(stage, replica.kind))
    return found


def price_relayout(problem: PipelineProblem, held: Holdings, plan: PipelinePlan) -> Relayout:
    """The price of a placed plan on nodes that hold something already.

    Args:
        problem: the new problem.
        held: what its nodes hold of the old plan.
        plan: the new plan.
    """
    return _Mover(problem, held, plan).price()


def row_bytes(
    problem: PipelineProblem, row: int, kind: ReplicaKind, *, replicas: int, zero1: bool
) -> float:
    """Weights and optimizer state of a row in one replica, over all its devices."""
    sizes, memory = problem.model.sizes_by_tp[kind.tp], problem.memory
    parameters = float(sizes.parameters[row])
    if sizes.expert_parameters:
        parameters += sizes.expert_parameters[row] / kind.ep
    shards = replicas if zero1 else 1
    each = problem.model.dtype_bytes + memory.optimizer_bytes / shards
    return parameters * kind.tp * each


def _shards(stage: Stage, kind: ReplicaKind) -> list[Shard]:
    return [Shard(row, kind.tp, kind.ep) for row in range(stage.first, stage.end)]


@dataclass
class _Mover:
    """Deals the rows that are missing to sources, the least busy first."""

    problem: PipelineProblem
    held: Holdings
    plan: PipelinePlan
    sent_s: dict[NodeKey, float] = field(default_factory=lambda: defaultdict(float))
    received_s: dict[NodeKey, float] = field(default_factory=lambda: defaultdict(float))
    inside_s: dict[NodeKey, float] = field(default_factory=lambda: defaultdict(float))
    rates: dict[tuple[Port, Port], float] = field(default_factory=dict)

    def price(self) -> Relayout:
        """Goes through all replicas of the new plan."""
        left = {key: Counter(shards) for key, shards in self.held.items()}
        holders = self._holders()
        network = inside = lost = 0.0
        lost_rows: set[int] = set()
        movers: set[tuple[int, int, int]] = set()
        for at, node, stage, kind in _replicas(self.plan):
            for shard in _shards(stage, kind):
                size = self._bytes(shard, stage, kind)
                sources = holders.setdefault(shard.row, set())
                if left.get(node, Counter())[shard] > 0:
                    left[node][shard] -= 1
                elif node in sources:
                    inside += size
                    movers.add(at)
                    self.inside_s[node] += size / self._inside_rate(node)
                elif sources:
                    network += size
                    movers.add(at)
                    self._receive(node, size, sources)
                else:
                    lost += size
                    lost_rows.add(shard.row)
                    movers.add(at)
                    self.received_s[node] += size / self._storage_rate
                sources.add(node)
        return Relayout(
            network_bytes=network,
            inside_bytes=inside,
            lost_bytes=lost,
            lost_rows=tuple(sorted(lost_rows)),
            replicas=len(movers),
            seconds=self._seconds(),
        )

    def _holders(self) -> dict[int, set[NodeKey]]:
        """Nodes that can send a row; experts that are spread count where all of them are left."""
        found: dict[int, set[NodeKey]] = {}
        left = sum(self.held.values(), Counter())
        for key, shards in self.held.items():
            for shard in shards:
                if left[shard] >= shard.ep:
                    found.setdefault(shard.row, set()).add(key)
        return found

    def _bytes(self, shard: Shard, stage: Stage, kind: ReplicaKind) -> float:
        replicas = len(stage.replicas)
        return row_bytes(self.problem, shard.row, kind, replicas=replicas, zero1=self.plan.zero1)

    def _receive(self, node: NodeKey, size: float, sources: set[NodeKey]) -> None:
        def end_s(source: NodeKey) -> float:
            return self.sent_s[source] + size / self._rate(source, node)

        source = min(sorted(sources), key=end_s)
        seconds = size / self._rate(source, node)
        self.sent_s[source] += seconds
        self.received_s[node] += seconds

    def _seconds(self) -> float:
        nodes = {*self.sent_s, *self.received_s, *self.inside_s}
        network = (max(self.sent_s[n], self.received_s[n]) + self.inside_s[n] for n in nodes)
        return max(network, default=0.0)

    def _rate(self, source: NodeKey, target: NodeKey) -> float:
        ports = self._port(source), self._port(target)
        if ports not in self.rates:
            route = self.problem.tables.route(*ports)
            self.rates[ports] = _rate_of(route) if route else self._storage_rate
        return self.rates[ports]

    def _inside_rate(self, node: NodeKey) -> float:
        link = self.problem.tables.node_link(node[0], 2)
        return _rate_of(link) if link else self._storage_rate

    @property
    def _storage_rate(self) -> float:
        return float(self.problem.cluster.inter_link.bandwidth_bytes_per_s)

    def _port(self, node: NodeKey) -> Port:
        kind, number = node
        return Port(kind, self.problem.nodes_of_type[kind][number].zone, 1)


def _replicas(
    plan: PipelinePlan,
) -> Iterator[tuple[tuple[int, int, int], NodeKey, Stage, ReplicaKind]]:
    for p, i, stage in plan.stages():
        for n, replica in enumerate(stage.replicas):
            assert replica.node is not None  # asked for placed plans only
            yield (p, i, n), (replica.kind.device_type, replica.node), stage, replica.kind


def _rate_of(curve: Curve) -> float:
    return _MESSAGE_BYTES / curve.seconds(_MESSAGE_BYTES)
