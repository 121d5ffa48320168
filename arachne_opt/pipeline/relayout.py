"""What it takes to go from one pipeline plan to another: bytes that move, and time over the links.

A device holds the weights of its rows, as tensor and expert parallelism cut them, and their
optimizer state or its shard of that. What the device has already stays where it is; the rest comes
from another device of its node, or over the network. Every node sends and receives at once; who has
received something sends it on. The runtime moves the same bytes where the tables give the exact
sizes of rows, and less by the copies of tied weights, of which the tables know nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from arachne_opt.pipeline.cluster_change import NodeKey
from arachne_opt.pipeline.holdings import Device, Holdings, Units, settle, units_of
from arachne_opt.pipeline.moves import Held, Move, plan_moves, state_held, weights_held
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.tables import Curve, Port

_MESSAGE_BYTES = 50e6  # a usual message of a bulk copy, to read bandwidths


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayout:
    """The price of a change of plans.

    Args:
        network_bytes: weights and optimizer state that go from node to node.
        inside_bytes: the same inside nodes, from device to device.
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


def price_relayout(problem: PipelineProblem, held: Holdings, plan: PipelinePlan) -> Relayout:
    """The price of a placed plan on devices that hold something already.

    Args:
        problem: the new problem.
        held: what its devices hold of the old plan.
        plan: the new plan.
    """
    return _Mover(problem, held, settle(held, plan)).price()


@dataclass
class _Mover:
    """Weighs all moves, and adds up how long nodes send and receive."""

    problem: PipelineProblem
    old: Holdings
    new: Holdings
    sent_s: dict[NodeKey, float] = field(default_factory=lambda: defaultdict(float))
    received_s: dict[NodeKey, float] = field(default_factory=lambda: defaultdict(float))
    inside_s: dict[NodeKey, float] = field(default_factory=lambda: defaultdict(float))
    rates: dict[tuple[Port, Port], float] = field(default_factory=dict)

    def price(self) -> Relayout:
        """Goes through all that devices need under the new plan."""
        units = units_of(self.problem.model, self.old.layout, self.new.layout)
        known = dict.fromkeys(d for h in (self.old, self.new) for d in h.devices if d is not None)
        numbers = {device: n for n, device in enumerate(known)}
        nodes = [device.node for device in known]
        total = {"network": Fraction(0), "inside": Fraction(0), "lost": Fraction(0)}
        lost_rows: set[int] = set()
        movers: set[int] = set()
        for value_bytes, before, after in self._holdings(units, numbers):
            for move in plan_moves(before, after, nodes.__getitem__):
                if move.source == move.target:
                    continue
                entry = units.entries[move.key.row]
                weight = move.values * entry.values[move.key.name] * value_bytes
                if not weight:
                    continue
                movers.add(move.target)
                total[self._carry(move, nodes, float(weight))] += weight
                lost_rows |= set(entry.rows) if move.source is None else set()
        return Relayout(
            network_bytes=float(total["network"]),
            inside_bytes=float(total["inside"]),
            lost_bytes=float(total["lost"]),
            lost_rows=tuple(sorted(lost_rows)),
            replicas=len({self._replica(numbers, n) for n in movers}),
            seconds=self._seconds(),
        )

    def _holdings(
        self, units: Units, numbers: dict[Device, int]
    ) -> Iterator[tuple[Fraction, Held, Held]]:
        """Weights, then optimizer state: bytes of a value, and who holds what before and after."""

        def places(side: Holdings) -> list[int]:
            return [-1 if d is None else numbers[d] for d in side.devices]

        def state(side: Holdings) -> Held:
            return state_held(side.layout, units.model, places(side), zero1=side.zero1)

        before, after = (
            weights_held(side.layout, units.model, places(side)) for side in (self.old, self.new)
        )
        yield Fraction(self.problem.model.dtype_bytes), before, after
        yield Fraction(self.problem.memory.optimizer_bytes), state(self.old), state(self.new)

    def _carry(self, move: Move, nodes: list[NodeKey], size: float) -> str:
        """Adds the time of a move; says which way it takes."""
        target = nodes[move.target]
        if move.source is None:
            self.received_s[target] += size / self._storage_rate
            return "lost"
        source = nodes[move.source]
        if source == target:
            self.inside_s[target] += size / self._inside_rate(target)
            return "inside"
        seconds = size / self._rate(source, target)
        self.sent_s[source] += seconds
        self.received_s[target] += seconds
        return "network"

    def _replica(self, numbers: dict[Device, int], number: int) -> tuple[int, int, int]:
        rank = next(r for r, d in enumerate(self.new.devices) if d and numbers[d] == number)
        member = self.new.layout.members[rank]
        return member.pipeline, member.stage, member.replica

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


def _rate_of(curve: Curve) -> float:
    return _MESSAGE_BYTES / curve.seconds(_MESSAGE_BYTES)
