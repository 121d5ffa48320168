"""Prices from the tables of a problem, with prefix sums and caches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.tables import Curve, Port, StepTimes

# Constants of the public price formula (see docs of the data: eth-easl/sailor).
BUCKET_BYTES = 500_000_000
WIDEST_SHARD = 4

_Span = tuple[ReplicaKind, int, int, int, bool]


class TableCosts:
    """Implements ``PipelineCosts`` on the tables of a problem."""

    def __init__(self, problem: PipelineProblem) -> None:
        self.problem = problem
        self.row_count = problem.model.row_count
        model, experts = problem.model, problem.model.experts
        self._outputs = np.array(model.output_bytes, dtype=np.float64)
        self._gradients = _spans(model.parameter_bytes)
        self._expert_gradients = _spans(experts.parameter_bytes) if experts else None
        self._prefixes: dict[tuple[ReplicaKind, int, bool], Floats] = {}
        self._prefix_lists: dict[tuple[ReplicaKind, int, bool], list[float]] = {}
        self._updates: dict[tuple[ReplicaKind, int], Floats] = {}
        self._cuts: dict[tuple[frozenset[tuple[Port, Port]], float], tuple[Floats, Floats]] = {}
        self._memory: dict[_Span, Floats] = {}
        self._ends: dict[_Span, Ints] = {}
        self._rings: dict[tuple[frozenset[tuple[Port, Port]], int, int, int], Floats] = {}

    @cached_property
    def kinds(self) -> tuple[ReplicaKind, ...]:
        """Kinds of replica that this cluster can hold and that have step times."""
        found: list[ReplicaKind] = []
        places = {(n.device_type.name, n.zone) for n in self.problem.cluster.nodes}
        for name, zone in sorted(places):
            nodes = self.problem.nodes_of_type[name]
            sizes = [n.device_count for n in nodes if n.zone == zone]
            for tp in self._degrees(name, max(sizes)):
                found += self._with_experts(name, zone, tp, sizes)
        return tuple(found)

    def microbatches(self, kind: ReplicaKind) -> tuple[int, ...]:
        """Micro-batches with step times that the problem's options allow, in rising order."""
        return self._microbatches.get((kind.device_type, kind.tp), ())

    def work_prefix_s(
        self, kind: ReplicaKind, microbatch: int, *, recompute: bool = False
    ) -> Floats:
        """Forward + backward seconds of rows [0, c) at index c, all-to-all included."""
        key = (kind, microbatch, recompute)
        if key not in self._prefixes:
            self._prefixes[key] = _prefix(self._work_by_row(kind, microbatch, recompute))
        return self._prefixes[key]

    def work_s(
        self, kind: ReplicaKind, microbatch: int, first: int, end: int, *, recompute: bool = False
    ) -> float:
        """Forward + backward seconds of rows [first, end)."""
        key = (kind, microbatch, recompute)
        prefix = self._prefix_lists.get(key)
        if prefix is None:
            prefix = self.work_prefix_s(kind, microbatch, recompute=recompute).tolist()
            self._prefix_lists[key] = prefix
        return prefix[end] - prefix[first]

    def update_s(self, kind: ReplicaKind, microbatch: int) -> Floats:
        """Optimizer update of a stage, by its first row."""
        key = (kind, microbatch)
        if key not in self._updates:
            step = self._step(kind, microbatch)
            update = np.array(step.update_s)
            if step.expert_update_s:
                update = update + np.array(step.expert_update_s) / kind.ep
            self._updates[key] = _frozen(update)
        return self._updates[key]

    def cut_s(
        self, source: Sequence[ReplicaKind], target: Sequence[ReplicaKind], batch: int
    ) -> tuple[Floats, Floats]:
        """Seconds (forward, backward) of one micro-batch through a boundary, by its cut."""
        n, m = len(source), len(target)
        pairs = frozenset((_port(source[j % n]), _port(target[j % m])) for j in range(max(n, m)))
        key = (pairs, batch / min(n, m))
        if key not in self._cuts:
            self._cuts[key] = self._cut(*key)
        return self._cuts[key]

    def memory_bytes(
        self,
        kind: ReplicaKind,
        microbatch: int,
        first: int,
        end: int,
        in_flight: int,
        *,
        shards: int = 1,
        recompute: bool = False,
    ) -> float:
        """Bytes of one device for rows [first, end) with ``in_flight`` micro-batches."""
        key = (_sizes_key(kind), microbatch, in_flight, shards, recompute)
        if key not in self._memory:
            self._memory[key] = self._memory_table(*key)
        return float(self._memory[key][first, end])

    def furthest_end(
        self,
        kind: ReplicaKind,
        microbatch: int,
        in_flight: int,
        *,
        shards: int = 1,
        recompute: bool = False,
    ) -> Ints:
        """The last cut that a stage may end at, by its first row; the first row if none fits."""
        sizes = _sizes_key(kind)._replace(device_type=kind.device_type)
        key = (sizes, microbatch, in_flight, shards, recompute)
        if key not in self._ends:
            table = self._memory_table(*key)
            has = self.problem.cluster.device_types[kind.device_type].memory_bytes
            later = np.triu(np.ones_like(table, dtype=bool), 1)
            fits = (later & (table <= has)).sum(axis=1)[: self.row_count]
            self._ends[key] = _frozen_ints(fits + np.arange(self.row_count))
        return self._ends[key]

    def stage_sync_s(self, ring: Sequence[ReplicaKind], *, cautious: bool = False) -> Floats:
        """Gradient exchange inside a stage as a table [first, end]."""
        ports = [_port(kind, 1) for kind in ring]
        links = set(pairwise(ports))
        if cautious and len(ports) > 1:
            links.add((ports[-1], ports[0]))
            links |= {(b, a) for a, b in links}
        shard = min(WIDEST_SHARD, *(kind.tp for kind in ring))
        return self._ring_table(frozenset(links), len(ring), shard, ring[0].ep)

    def cross_sync_s(self, source: ReplicaKind, target: ReplicaKind, pipelines: int) -> Floats:
        """Gradient exchange of a stage across pipelines over one link, as a table [first, end]."""
        curve = self.problem.tables.route(_port(source, 1), _port(target, 1))
        sizes = self._gradients
        if self._expert_gradients is not None:
            sizes = sizes + self._expert_gradients / source.ep
        return ring_s(sizes, pipelines, curve)

    @cached_property
    def _microbatches(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Micro-batches by device type and tp; asked for often."""
        wanted = self.problem.options.microbatches
        found: dict[tuple[str, int], list[int]] = {}
        for s in self.problem.tables.steps:
            if wanted is None or s.microbatch in wanted:
                found.setdefault((s.device_type, s.tp), []).append(s.microbatch)
        return {key: tuple(sorted(sizes)) for key, sizes in found.items()}

    def _degrees(self, name: str, widest: int) -> list[int]:
        limit = min(widest, self.problem.options.max_tp or widest)
        steps = self.problem.tables.steps
        return sorted({s.tp for s in steps if s.device_type == name and s.tp <= limit})

    def _with_experts(
        self, name: str, zone: str, tp: int, sizes: Sequence[int]
    ) -> list[ReplicaKind]:
        """The kind without expert parallelism, then inside a node, then across nodes."""
        found = [ReplicaKind(name, tp, zone=zone)]
        groups = sum(size // tp for size in sizes)
        for ep in self.problem.model.expert_degrees[1:]:
            if ep * tp <= max(sizes):
                found.append(ReplicaKind(name, tp, ep, True, zone))
            if ep <= groups and len(sizes) > 1:
                found.append(ReplicaKind(name, tp, ep, False, zone))
        return found

    def _step(self, kind: ReplicaKind, microbatch: int) -> StepTimes:
        return self.problem.tables.step_by_key[kind.device_type, kind.tp, microbatch]

    def _work_by_row(self, kind: ReplicaKind, microbatch: int, recompute: bool) -> Floats:
        """Forward + backward (+ forward again), experts lengthened by imbalance, + all-to-all."""
        step, experts = self._step(kind, microbatch), self.problem.model.experts
        forwards = 2 if recompute else 1
        work: Floats = forwards * np.array(step.forward_s) + np.array(step.backward_s)
        if experts is None or kind.ep == 1:
            return work
        if step.expert_forward_s:
            extra = forwards * np.array(step.expert_forward_s) + np.array(step.expert_backward_s)
            work = work + (experts.imbalance - 1) * extra
        away = microbatch * (kind.ep - 1) / kind.ep
        sizes = np.array(experts.exchange_bytes, dtype=np.float64) * away
        return work + 2 * (forwards + 1) * send_s(sizes, self._exchange_curve(kind))

    def _exchange_curve(self, kind: ReplicaKind) -> Curve | None:
        if kind.ep_local:
            return self.problem.tables.node_link(kind.device_type, kind.ep * kind.tp)
        return self.problem.tables.route(_port(kind), _port(kind))

    def _cut(self, pairs: frozenset[tuple[Port, Port]], samples: float) -> tuple[Floats, Floats]:
        """The slowest pair forward and backward; cut c sends row c - 1 on and row c back."""
        route = self.problem.tables.route
        sizes = self._outputs * samples
        ahead = np.max([send_s(sizes, route(a, b)) for a, b in pairs], axis=0)
        back = np.max([send_s(sizes, route(b, a)) for a, b in pairs], axis=0)
        forward, backward = np.zeros(self.row_count + 1), np.zeros(self.row_count + 1)
        forward[1:], backward[:-1] = ahead, back
        return _frozen(forward), _frozen(backward)

    def _memory_table(
        self, kind: ReplicaKind, microbatch: int, in_flight: int, shards: int, recompute: bool
    ) -> Floats:
        """Bytes by [first, end]; see ``MemoryRule``."""
        rule, sizes = self.problem.memory, self.problem.model.sizes_by_tp[kind.tp]
        parameters = np.array(sizes.parameters, dtype=np.float64)
        if sizes.expert_parameters:
            parameters = parameters + np.array(sizes.expert_parameters) / kind.ep
        kept = _spans(sizes.kept)
        if recompute:
            kept = self._recomputed_table(kind.tp) / in_flight + self._input_table()
        table = rule.state_bytes(shards) * _spans(parameters)
        table += rule.activation_bytes * microbatch * in_flight * kept
        return _frozen(table + rule.runtime(kind.tp))

    def _input_table(self) -> Floats:
        """Values that enter the rows [first, end): outputs of the rows before each."""
        values = self._outputs / self.problem.model.dtype_bytes
        return _spans(np.concatenate([[0.0], values[:-1]]))

    def _recomputed_table(self, tp: int) -> Floats:
        """Kept values of the largest row of [first, end)."""
        kept = np.array(self.problem.model.sizes_by_tp[tp].kept, dtype=np.float64)
        table = np.zeros((self.row_count + 1, self.row_count + 1))
        for first in range(self.row_count):
            table[first, first + 1 :] = np.maximum.accumulate(kept[first:])
        return table

    def _ring_table(
        self, links: frozenset[tuple[Port, Port]], members: int, shard: int, ep: int
    ) -> Floats:
        """Slowest link of a ring; experts are exchanged among the members / ep that share them."""
        key = (links, members, shard, ep)
        if key not in self._rings:
            table = np.zeros_like(self._gradients)
            for a, b in links:
                curve = self.problem.tables.route(a, b)
                cost = ring_s(self._gradients / shard, members, curve)
                if self._expert_gradients is not None:
                    experts = self._expert_gradients / (shard * ep)
                    cost = cost + ring_s(experts, members // ep, curve)
                table = np.maximum(table, cost)
            self._rings[key] = _frozen(table)
        return self._rings[key]


def send_s(sizes: Floats, curve: Curve | None) -> Floats:
    """Seconds to send each size; infinite without a curve or where it gives no bandwidth."""
    out = np.zeros_like(sizes)
    some = sizes > 0
    if curve is None:
        out[some] = np.inf
        return out
    x = np.log2(sizes[some] / 1e6)
    rate = curve.square * x * x + curve.slope * x + curve.constant
    safe = np.where(rate > 0, rate, 1.0)
    out[some] = np.where(rate > 0, sizes[some] / (safe * 1e9) + curve.latency_s, np.inf)
    return out


def ring_s(sizes: Floats, members: int, curve: Curve | None) -> Floats:
    """All-reduce of each size among members: per bucket 2 (n - 1) sends of an n-th."""
    if members < 2:
        return np.zeros_like(sizes)
    full, rest = np.divmod(sizes, BUCKET_BYTES)
    buckets = np.zeros_like(sizes)
    some = full > 0  # zero buckets over a link that is not there cost nothing, not nan
    buckets[some] = full[some] * send_s(np.array([BUCKET_BYTES / members]), curve)[0]
    return 2 * (members - 1) * (buckets + send_s(rest / members, curve))


def _port(kind: ReplicaKind, width: int | None = None) -> Port:
    return Port(kind.device_type, kind.zone, kind.tp if width is None else width)


def _sizes_key(kind: ReplicaKind) -> ReplicaKind:
    """What decides memory: tp and ep."""
    return ReplicaKind("", kind.tp, kind.ep)


def _prefix(values: Floats) -> Floats:
    return _frozen(np.concatenate([[0.0], np.cumsum(values)]))


def _spans(values: Sequence[float] | Floats) -> Floats:
    """Sums of values[first:end] as a table [first, end], 0 where end <= first."""
    prefix = np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
    return np.triu(prefix[None, :] - prefix[:, None])


def _frozen(values: Floats) -> Floats:
    values.setflags(write=False)
    return values


def _frozen_ints(values: Ints) -> Ints:
    values.setflags(write=False)
    return values
