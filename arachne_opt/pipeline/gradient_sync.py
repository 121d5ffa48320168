"""Gradient exchange by segments of rows, across pipelines whose cuts differ.

A segment is a longest run of rows that one stage of every pipeline holds. Its gradients are reduced
inside each of these stages, then across the pipelines. A stage exchanges one segment at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.plan import ReplicaKind, Stage


class Holder(NamedTuple):
    """The stage that holds a row, by its numbers and with its replicas."""

    pipeline: int
    number: int
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSync:
    """The exchange of the gradients of rows ``first`` to ``end`` - 1."""

    first: int
    end: int
    start_s: float
    end_s: float


def exchange(
    facts: Facts, holders: Sequence[Sequence[Holder]], ready_s: Sequence[Sequence[float]]
) -> tuple[SegmentSync, ...]:
    """All exchanges of an iteration, those that cost nothing left out, by their start.

    Args:
        facts: prices.
        holders: of each pipeline, the holder of each row.
        ready_s: of each pipeline, when the gradient of each row is complete.
    """
    waiting = []
    for rows in _segments(holders):
        mine = [of_pipeline[rows.start] for of_pipeline in holders]
        cost = exchange_s(facts, [h.stage for h in mine], rows)
        keys = [(h.pipeline, h.number) for h in mine]
        if cost > 0:
            waiting.append((rows, cost, _ready_s(rows, ready_s), keys))
    free_s: dict[tuple[int, int], float] = {}
    done = []

    def urgency(entry: tuple[range, float, float, list[tuple[int, int]]]) -> tuple[float, ...]:
        rows, cost, ready, keys = entry
        return max(ready, *(free_s.get(k, 0.0) for k in keys)), -cost, -rows.start

    while waiting:
        entry = min(waiting, key=urgency)
        waiting.remove(entry)
        rows, cost, _, keys = entry
        start = urgency(entry)[0]
        free_s |= dict.fromkeys(keys, start + cost)
        done.append(SegmentSync(first=rows.start, end=rows.stop, start_s=start, end_s=start + cost))
    return tuple(sorted(done, key=lambda s: (s.start_s, s.first)))


def exchange_s(facts: Facts, stages: Sequence[Stage], rows: range) -> float:
    """Time of one segment: slowest stage's ring, then the ring across pipelines."""
    inside = max(facts.ring_of_rows_s(stage, rows) for stage in stages)
    if len(stages) == 1:
        return inside
    kinds = dict.fromkeys(k for stage in stages for k in stage.kinds)
    across = max(
        facts.cross_s(a, b, a.ep, rows, len(stages)) for a in kinds for b in _partners(a, kinds)
    )
    return inside + across


def _partners(kind: ReplicaKind, kinds: dict[ReplicaKind, None]) -> list[ReplicaKind]:
    """Its like, and every type of other zones."""
    return [kind, *(k for k in kinds if k.zone != kind.zone)]


def _segments(holders: Sequence[Sequence[Holder]]) -> list[range]:
    count = len(holders[0])
    cuts = [0]
    for row in range(1, count):
        if any(own[row][:2] != own[row - 1][:2] for own in holders):
            cuts.append(row)
    return [range(a, b) for a, b in zip(cuts, [*cuts[1:], count], strict=True)]


def _ready_s(rows: range, ready_s: Sequence[Sequence[float]]) -> float:
    return max(own[row] for own in ready_s for row in rows)
