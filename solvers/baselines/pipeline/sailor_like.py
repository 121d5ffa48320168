"""Like Sailor: even layers, stages of one type, and for each stage the least tp that fits.

Source of the rule: Strati et al., Sailor, SOSP 2025, and the plans of its public planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.baselines.pipeline.layouts import (
    Layout,
    Proposal,
    dense_kinds,
    split_rows,
)
from arachne_opt.solvers.pipeline.workbench import Workbench

_MOST_STAGES = 12


def sailor_like(bench: Workbench) -> Iterator[Proposal]:
    """All numbers of even stages, shared among the types in every order, with all dp."""
    by_place = [k for k in dense_kinds(bench) if k]
    microbatches = sorted({m for own in by_place for k in own for m in bench.costs.microbatches(k)})
    for size in range(1, len(by_place) + 1):
        for order in permutations(range(len(by_place)), size):
            for numbers in product(range(1, _MOST_STAGES + 1), repeat=size):
                if sum(numbers) <= min(_MOST_STAGES, bench.space.in_stages):
                    own = [
                        by_place[p] for p, n in zip(order, numbers, strict=True) for _ in range(n)
                    ]
                    yield from _proposals(bench, own, microbatches)


def _proposals(
    bench: Workbench, own: Sequence[list[ReplicaKind]], microbatches: Sequence[int]
) -> Iterator[Proposal]:
    """With each micro-batch the least tp of each stage, and all dp that then fit."""
    rows, samples = bench.costs.row_count, bench.problem.global_batch
    cuts = split_rows(rows, [1.0] * len(own))
    for m in microbatches:
        kinds = [
            _least_tp(bench, own[i], m, cuts[i], cuts[i + 1], len(own) - i) for i in range(len(own))
        ]
        if None in kinds:
            continue
        chosen = tuple(k for k in kinds if k is not None)
        devices = {k.device_type: 0 for k in chosen}
        for k in chosen:
            devices[k.device_type] += k.tp
        room = bench.problem.nodes_of_type
        most = min(sum(n.device_count for n in room[t]) // used for t, used in devices.items())
        for replicas in range(1, most + 1):
            yield Proposal(Layout(chosen, replicas, m).pipeline(cuts, samples))


def _least_tp(
    bench: Workbench, kinds: list[ReplicaKind], m: int, first: int, end: int, in_flight: int
) -> ReplicaKind | None:
    for kind in sorted(kinds, key=lambda k: k.tp):
        if m in bench.costs.microbatches(kind):
            ends = bench.costs.furthest_end(kind, m, in_flight)
            if ends[first] >= end:
                return kind
    return None
