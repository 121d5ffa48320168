"""Like Sailor: even layers, stages of one type, and for each stage the least tp that fits.

Source of the rule: Strati et al., Sailor, SOSP 2025, and the plans of its public planner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
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

# Of (place, micro-batch, first row, end, micro-batches in flight), the kind of a stage.
_Chooser = Callable[[int, int, int, int, int], ReplicaKind | None]


def sailor_like(bench: Workbench) -> Iterator[Proposal]:
    """All numbers of even stages, shared among the types in every order, with all dp."""
    by_place = [k for k in dense_kinds(bench) if k]
    microbatches = sorted({m for own in by_place for k in own for m in bench.costs.microbatches(k)})
    most = min(_MOST_STAGES, bench.space.in_stages)

    @cache
    def choose(place: int, m: int, first: int, end: int, in_flight: int) -> ReplicaKind | None:
        return _least_tp(bench, by_place[place], m, first, end, in_flight)

    for size in range(1, len(by_place) + 1):
        for order in permutations(range(len(by_place)), size):
            for numbers in product(range(1, most + 1), repeat=size):
                if sum(numbers) <= most:
                    own = [p for p, n in zip(order, numbers, strict=True) for _ in range(n)]
                    yield from _proposals(bench, own, microbatches, choose)


def _proposals(
    bench: Workbench, own: Sequence[int], microbatches: Sequence[int], choose: _Chooser
) -> Iterator[Proposal]:
    """With each micro-batch the least tp of each stage, and all dp that then fit."""
    count = len(own)
    cuts = split_rows(bench.costs.row_count, [1.0] * count)
    for m in microbatches:
        chosen: list[ReplicaKind] = []
        for i, place in enumerate(own):
            kind = choose(place, m, cuts[i], cuts[i + 1], count - i)
            if kind is None:
                break
            chosen.append(kind)
        if len(chosen) < count:
            continue
        devices: dict[str, int] = {}
        for k in chosen:
            devices[k.device_type] = devices.get(k.device_type, 0) + k.tp
        room = bench.problem.nodes_of_type
        most = min(sum(n.device_count for n in room[t]) // used for t, used in devices.items())
        for replicas in range(1, most + 1):
            yield Proposal(Layout(tuple(chosen), replicas, m), cuts)


def _least_tp(
    bench: Workbench, kinds: list[ReplicaKind], m: int, first: int, end: int, in_flight: int
) -> ReplicaKind | None:
    for kind in sorted(kinds, key=lambda k: k.tp):
        if m in bench.costs.microbatches(kind):
            ends = bench.costs.furthest_end(kind, m, in_flight)
            if ends[first] >= end:
                return kind
    return None
