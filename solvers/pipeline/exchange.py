"""Cautious gradient exchange of a set of columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from arachne_opt.costs.pipeline.base import Floats, PipelineCosts
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.solvers.pipeline.columns import Column
from arachne_opt.solvers.pipeline.options import StageOption


class Exchange:
    """Looks up exchanges inside stages and across pipelines; remembers what it looked up."""

    def __init__(self, costs: PipelineCosts) -> None:
        self._costs = costs
        self._inside: dict[StageOption, Floats] = {}
        self._across: dict[tuple[ReplicaKind, ReplicaKind, int], Floats] = {}

    def seconds(self, columns: Sequence[Column]) -> float:
        """The whole exchange: the slowest stage, and that of all stages across pipelines."""
        return max(self.inside_s(c) for c in columns) + self.across_s(columns)

    def inside_s(self, column: Column) -> float:
        """Exchange among the replicas of the slowest stage."""
        return max(
            float(self._ring(option)[column.cuts[i], column.cuts[i + 1]])
            for i, option in enumerate(column.options)
        )

    def across_s(self, columns: Sequence[Column]) -> float:
        """Exchange across pipelines: every stage over every link between types in use."""
        if len(columns) < 2:
            return 0.0
        kinds = [b.kind for c in columns for o in c.options for b in o.blocks]
        return max(self.across_of(c, kinds, len(columns)) for c in columns)

    def across_of(self, column: Column, kinds: Sequence[ReplicaKind], pipelines: int) -> float:
        """The part of a column's stages, over every link between the types of these kinds."""
        spans = {
            (column.cuts[i], column.cuts[i + 1], option.blocks[0].kind.ep)
            for i, option in enumerate(column.options)
        }
        ports = list(dict.fromkeys(_port(k) for k in kinds))
        return max(
            float(self._link(a._replace(ep=ep), b, pipelines)[first, end])
            for (a, b), (first, end, ep) in product(product(ports, ports), spans)
        )

    def own_across_s(self, column: Column, pipelines: int) -> float:
        """Exchange of a column's stages across pipelines if all others had its types."""
        return max(
            float(self._link(k._replace(ep=b.kind.ep), k, pipelines)[first, end])
            for option, first, end in zip(
                column.options, column.cuts, column.cuts[1:], strict=False
            )
            for b in option.blocks
            for k in [_port(b.kind)]
        )

    def across_table(self, kinds: Sequence[ReplicaKind], pipelines: int) -> Floats:
        """Exchange of a stage [first, end] across pipelines over the slowest link there may be."""
        ports = list(dict.fromkeys(_port(k) for k in kinds))
        tables = [self._link(a, b, pipelines) for a, b in product(ports, ports)]
        finite = [t for t in tables if np.isfinite(t).all()]
        found: Floats = np.max(finite or tables, axis=0)
        return found

    def _ring(self, option: StageOption) -> Floats:
        if option not in self._inside:
            self._inside[option] = self._costs.stage_sync_s(option.ring, cautious=True)
        return self._inside[option]

    def _link(self, a: ReplicaKind, b: ReplicaKind, pipelines: int) -> Floats:
        key = (a, b, pipelines)
        if key not in self._across:
            self._across[key] = self._costs.cross_sync_s(a, b, pipelines)
        return self._across[key]


def _port(kind: ReplicaKind) -> ReplicaKind:
    return ReplicaKind(kind.device_type, zone=kind.zone)
