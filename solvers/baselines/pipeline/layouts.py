"""What the peers' rules have in common: type after type, every stage of one kind and equal dp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product

from arachne_opt.pipeline.plan import Pipeline, ReplicaKind
from arachne_opt.pipeline.template import ReplicaBlock, Template
from arachne_opt.solvers.pipeline.options import node_width
from arachne_opt.solvers.pipeline.workbench import Workbench


@dataclass(frozen=True, slots=True)
class Layout:
    """Stages by their kinds, each with ``replicas`` replicas, and the micro-batch of each."""

    kinds: tuple[ReplicaKind, ...]
    replicas: int
    microbatch: int

    def rounds(self, samples: int) -> int:
        """Micro-batches that the samples take."""
        return -(-samples // (self.microbatch * self.replicas))


@dataclass(frozen=True, slots=True)
class Proposal:
    """A layout with its cuts; an estimate where a rule chooses by its own idea of the time."""

    layout: Layout
    cuts: tuple[int, ...]
    estimate_s: float | None = None

    def pipeline(self, samples: int) -> Pipeline:
        """The pipeline that trains the samples alone."""
        own = self.layout
        stages = tuple((ReplicaBlock(kind=k, count=own.replicas),) for k in own.kinds)
        return Template(stages=stages).pipeline(self.cuts, own.microbatch, own.rounds(samples))

    def compute_s(self, bench: Workbench) -> float:
        """Its time without messages, exchange and update, which no price is below."""
        own = self.layout
        loads = [
            bench.costs.work_s(kind, own.microbatch, first, end)
            for kind, (first, end) in zip(own.kinds, pairwise(self.cuts), strict=True)
        ]
        return (own.rounds(bench.problem.global_batch) - 1) * max(loads) + sum(loads)


def dense_kinds(bench: Workbench) -> list[list[ReplicaKind]]:
    """Kinds without expert parallelism, by type and zone; no peer knows of it."""
    kinds = [k for k in bench.costs.kinds if k.ep == 1]
    return [
        [k for k in kinds if bench.space.place_of(k) == place]
        for place in range(len(bench.space.places))
    ]


def full_layouts(
    bench: Workbench, *, one_tp: bool, powers_of_two: bool = False
) -> Iterator[Layout]:
    """Layouts that fill the devices of some types, in every order of the types.

    Args:
        bench: the problem.
        one_tp: all stages have the same tp.
        powers_of_two: only dp that is a power of two.
    """
    by_place = dense_kinds(bench)
    for size in range(1, len(by_place) + 1):
        for order in permutations(range(len(by_place)), size):
            for kinds in product(*(by_place[p] for p in order)):
                if one_tp and len({k.tp for k in kinds}) > 1:
                    continue
                yield from _of_kinds(bench, kinds, powers_of_two=powers_of_two)


def _of_kinds(
    bench: Workbench, kinds: Sequence[ReplicaKind], *, powers_of_two: bool
) -> Iterator[Layout]:
    groups = [_groups(bench, k) for k in kinds]
    shared = set.intersection(*(set(bench.costs.microbatches(k)) for k in kinds))
    for replicas in range(1, min(groups) + 1):
        if powers_of_two and replicas & (replicas - 1):
            continue
        numbers = [g // replicas for g in groups]
        if sum(numbers) > bench.space.in_stages:
            continue
        stages = tuple(k for k, n in zip(kinds, numbers, strict=True) for _ in range(n))
        for m in sorted(shared):
            yield Layout(stages, replicas, m)


def _groups(bench: Workbench, kind: ReplicaKind) -> int:
    """Tensor-parallel groups that the nodes hold."""
    width = node_width(kind)
    nodes = bench.problem.nodes_of_type[kind.device_type]
    return sum(n.device_count // width for n in nodes if n.zone == kind.zone)


def split_rows(rows: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Cuts that give each stage rows in proportion to its weight, at least one."""
    total, done, cuts = sum(weights), 0.0, [0]
    for i, weight in enumerate(weights):
        done += weight
        least, most = cuts[-1] + 1, rows - (len(weights) - 1 - i)
        cuts.append(min(max(round(rows * done / total), least), most))
    return tuple(cuts)
