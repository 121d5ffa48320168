"""What a plan costs, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class PipelinePrice:
    """Seconds of one pipeline, without gradient exchange.

    Args:
        compute_s: forward + backward of one micro-batch on the slowest replica, by stage.
        p2p_s: sends that one micro-batch costs each stage, in both directions.
        update_s: slowest optimizer update.
    """

    microbatches: int
    compute_s: tuple[float, ...]
    p2p_s: tuple[float, ...]
    update_s: float

    @cached_property
    def loads_s(self) -> tuple[float, ...]:
        """Compute and sends of every stage."""
        return tuple(c + p for c, p in zip(self.compute_s, self.p2p_s, strict=True))

    @property
    def bottleneck(self) -> int:
        """The (first) stage of the largest load."""
        return self.loads_s.index(max(self.loads_s))

    @property
    def steady_s(self) -> float:
        """All rounds of the bottleneck but one."""
        return (self.microbatches - 1) * max(self.loads_s)

    @property
    def fill_s(self) -> float:
        """One round of compute through all stages."""
        return sum(self.compute_s)

    @cached_property
    def total_s(self) -> float:
        """(M - 1) · max(c + p) + Σ c + Σ p + update."""
        return self.steady_s + sum(self.p2p_s) + self.fill_s + self.update_s


@dataclass(frozen=True, kw_only=True)
class PlanPrice:
    """Seconds of one iteration.

    Args:
        sync_s: gradient exchange inside stages and across pipelines.
        cautious_sync_s: the same with closed rings, both directions and all links; infinite where
            such a link has no curve.
    """

    pipelines: tuple[PipelinePrice, ...]
    sync_s: float
    cautious_sync_s: float

    @property
    def slowest(self) -> int:
        """The (first) pipeline that ends last."""
        totals = [p.total_s for p in self.pipelines]
        return totals.index(max(totals))

    @property
    def iteration_s(self) -> float:
        """Slowest pipeline and gradient exchange; infinite where a link has no curve."""
        return self.pipelines[self.slowest].total_s + self.sync_s

    @property
    def cautious_s(self) -> float:
        """The iteration with the stricter gradient exchange."""
        return self.pipelines[self.slowest].total_s + self.cautious_sync_s
