"""What a pipeline solver may ask of prices; all of it cheap enough for millions of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class PipelineCosts(Protocol):
    """Prices of rows, boundaries, memory and gradient exchange of one problem.

    Rows are numbered 0 to ``row_count`` - 1 and a cut c lies before row c, so that a stage of rows
    [a, b) is priced as ``prefix[b] - prefix[a]``. Arrays are cached and read-only. A link that has
    no curve costs infinity.
    """

    problem: PipelineProblem
    row_count: int

    @property
    def kinds(self) -> tuple[ReplicaKind, ...]:
        """Kinds of replica that this cluster can hold and that have step times."""
        ...

    def microbatches(self, kind: ReplicaKind) -> tuple[int, ...]:
        """Micro-batches with step times that the problem's options allow, in rising order."""
        ...

    def work_prefix_s(
        self, kind: ReplicaKind, microbatch: int, *, recompute: bool = False
    ) -> Floats:
        """Forward + backward seconds of rows [0, c) at index c, all-to-all included."""
        ...

    def work_s(
        self, kind: ReplicaKind, microbatch: int, first: int, end: int, *, recompute: bool = False
    ) -> float:
        """Forward + backward seconds of rows [first, end)."""
        ...

    def update_s(self, kind: ReplicaKind, microbatch: int) -> Floats:
        """Optimizer update of a stage, by its first row."""
        ...

    def cut_s(
        self, source: Sequence[ReplicaKind], target: Sequence[ReplicaKind], batch: int
    ) -> tuple[Floats, Floats]:
        """Seconds (forward, backward) of one micro-batch through a boundary, by its cut.

        Args:
            source: kinds of the replicas of the earlier stage, in order.
            target: the same of the later stage.
            batch: samples of one micro-batch over all replicas.
        """
        ...

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
        ...

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
        ...

    def stage_sync_s(self, ring: Sequence[ReplicaKind], *, cautious: bool = False) -> Floats:
        """Gradient exchange inside a stage as a table [first, end].

        Args:
            ring: kinds of all replicas in their order.
            cautious: closed rings in both directions.
        """
        ...

    def cross_sync_s(self, source: ReplicaKind, target: ReplicaKind, pipelines: int) -> Floats:
        """Gradient exchange of a stage across pipelines over one link, as a table [first, end]."""
        ...
