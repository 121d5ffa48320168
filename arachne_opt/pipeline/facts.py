"""Times and bytes of a plan's parts, derived once more from the raw tables of its problem.

Checker, price and simulator read these; solvers read the arrays in ``costs``. Both follow the same
published formula with code of their own, and tests hold them against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from arachne_opt.pipeline.plan import ReplicaKind, Stage
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.tables import Curve, Port, StepTimes

BUCKET_BYTES = 500_000_000
SMALLEST_SHARD = 4


class Facts:
    """Look-ups for one problem; a missing link costs infinity."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        self.model = problem.model
        self.tables = problem.tables

    def step(self, kind: ReplicaKind, samples: int) -> StepTimes | None:
        """Step times of a replica with its own micro-batch, None where there are none."""
        return self.tables.step_by_key.get((kind.device_type, kind.tp, samples))

    def forward_s(self, kind: ReplicaKind, samples: int, rows: range) -> float:
        """One forward of rows, with its two all-to-alls per row of experts."""
        step = self._need(kind, samples)
        return self._pass_s(kind, samples, rows, step.forward_s, step.expert_forward_s)

    def backward_s(
        self, kind: ReplicaKind, samples: int, rows: range, *, recompute: bool = False
    ) -> float:
        """One backward of rows, after a second forward if activations are rebuilt."""
        step = self._need(kind, samples)
        own = self._pass_s(kind, samples, rows, step.backward_s, step.expert_backward_s)
        return own + (self.forward_s(kind, samples, rows) if recompute else 0.0)

    def update_s(self, kind: ReplicaKind, samples: int, first: int) -> float:
        """Optimizer update of a stage, which the public formula reads at its first row."""
        step = self._need(kind, samples)
        experts = step.expert_update_s[first] / kind.ep if step.expert_update_s else 0.0
        return step.update_s[first] + experts

    def message_s(
        self, source: ReplicaKind, target: ReplicaKind, row: int, samples: float
    ) -> float:
        """A send of what a row puts out (or of its gradient) for some samples."""
        size = self.model.output_bytes[row] * samples
        return _seconds(self.tables.route(_port(source), _port(target)), size)

    def boundary_s(self, a: Stage, b: Stage, row: int, batch: int) -> float:
        """Slowest send of a row from stage a to stage b; the smaller side carries the batch."""
        smaller = min(len(a.replicas), len(b.replicas))
        return max(self.message_s(x, y, row, batch / smaller) for x, y in set(kind_pairs(a, b)))

    def stage_sync_s(self, stage: Stage, *, cautious: bool = False) -> float:
        """Gradient all-reduce of a stage among its replicas."""
        return self.ring_of_rows_s(stage, range(stage.first, stage.end), cautious=cautious)

    def ring_of_rows_s(self, stage: Stage, rows: range, *, cautious: bool = False) -> float:
        """The same for some of its rows, over the slowest link of the ring."""
        members = len(stage.replicas)
        shard = min([SMALLEST_SHARD, *(r.kind.tp for r in stage.replicas)])
        ep = stage.replicas[0].kind.ep
        dense, experts = self.gradient_bytes(rows)
        worst = 0.0
        for a, b in ring_links([r.kind for r in stage.replicas], cautious=cautious):
            curve = self.tables.route(_port(a, 1), _port(b, 1))
            cost = ring_s(dense / shard, members, curve)
            worst = max(worst, cost + ring_s(experts / shard / ep, members // ep, curve))
        return worst

    def cross_s(
        self, a: ReplicaKind, b: ReplicaKind, ep: int, rows: range, pipelines: int
    ) -> float:
        """Gradient all-reduce of rows across pipelines over one link."""
        dense, experts = self.gradient_bytes(rows)
        curve = self.tables.route(_port(a, 1), _port(b, 1))
        return ring_s(dense + experts / ep, pipelines, curve)

    def gradient_bytes(self, rows: range) -> tuple[int, int]:
        """Bytes of the gradients of rows: outside the experts, and of all experts."""
        dense = sum(self.model.parameter_bytes[r] for r in rows)
        experts = self.model.experts
        return dense, sum(experts.parameter_bytes[r] for r in rows) if experts else 0

    def memory_bytes(
        self, stage: Stage, kind: ReplicaKind, samples: int, in_flight: int, *, zero1: bool
    ) -> float:
        """Bytes of one device of a replica; see ``MemoryRule``."""
        rule, sizes = self.problem.memory, self.model.sizes_by_tp[kind.tp]
        rows = range(stage.first, stage.end)
        parameters: float = sum(sizes.parameters[r] for r in rows)
        if sizes.expert_parameters:
            parameters += sum(sizes.expert_parameters[r] for r in rows) / kind.ep
        kept: float = in_flight * sum(sizes.kept[r] for r in rows)
        if stage.recompute:
            inputs = sum(self.model.output_bytes[r - 1] for r in rows if r > 0)
            kept = in_flight * inputs / self.model.dtype_bytes + max(sizes.kept[r] for r in rows)
        state = rule.state_bytes(len(stage.replicas) if zero1 else 1) * parameters
        return state + rule.activation_bytes * samples * kept + rule.runtime(kind.tp)

    def _need(self, kind: ReplicaKind, samples: int) -> StepTimes:
        step = self.step(kind, samples)
        assert step is not None  # callers check the plan first
        return step

    def _pass_s(
        self,
        kind: ReplicaKind,
        samples: int,
        rows: range,
        times: Sequence[float],
        of_experts: Sequence[float],
    ) -> float:
        total = math.fsum(times[r] for r in rows)
        experts = self.model.experts
        if experts is None or kind.ep == 1:
            return total
        if of_experts:
            total += (experts.imbalance - 1) * math.fsum(of_experts[r] for r in rows)
        away = samples * (kind.ep - 1) / kind.ep
        curve = self._exchange_curve(kind)
        return total + 2 * math.fsum(
            _seconds(curve, experts.exchange_bytes[r] * away) for r in rows
        )

    def _exchange_curve(self, kind: ReplicaKind) -> Curve | None:
        if kind.ep_local:
            return self.tables.node_link(kind.device_type, kind.ep * kind.tp)
        return self.tables.route(_port(kind), _port(kind))


def kind_pairs(a: Stage, b: Stage) -> Iterable[tuple[ReplicaKind, ReplicaKind]]:
    """Kinds of the replicas that exchange activations, over all links."""
    for j, k in replica_pairs(len(a.replicas), len(b.replicas)):
        yield a.replicas[j].kind, b.replicas[k].kind


def replica_pairs(n: int, m: int) -> list[tuple[int, int]]:
    """Links between n and m replicas: number j of the one, modulo, with j of the other."""
    return [(j % n, j % m) for j in range(max(n, m))]


def ring_links(
    kinds: Sequence[ReplicaKind], *, cautious: bool
) -> set[tuple[ReplicaKind, ReplicaKind]]:
    """Neighbours in the order of a stage; cautious: closed, and in both directions."""
    links = {(kinds[i], kinds[i + 1]) for i in range(len(kinds) - 1)}
    if cautious and len(kinds) > 1:
        links.add((kinds[-1], kinds[0]))
        links.update([(b, a) for a, b in links])
    return links


def ring_s(size: float, members: int, curve: Curve | None) -> float:
    """All-reduce: per bucket of 500 MB, 2 (n - 1) sends of an n-th."""
    if members < 2 or size <= 0:
        return 0.0
    buckets, rest = divmod(size, BUCKET_BYTES)
    total = _seconds(curve, rest / members)
    if buckets:
        total += buckets * _seconds(curve, BUCKET_BYTES / members)
    return 2 * (members - 1) * total


def _port(kind: ReplicaKind, width: int | None = None) -> Port:
    return Port(kind.device_type, kind.zone, width or kind.tp)


def _seconds(curve: Curve | None, size: float) -> float:
    if size <= 0:
        return 0.0
    return math.inf if curve is None else curve.seconds(size)
