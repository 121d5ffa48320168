"""Pipeline plans: pipelines of stages of replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from arachne_opt.errors import InputError


class ReplicaKind(NamedTuple):
    """All that decides what a replica costs.

    Args:
        tp: devices of the tensor-parallel group, always inside one node.
        ep: replicas that share the experts of the stage; 1 holds them all.
        ep_local: the expert-parallel group lies inside one node.
        zone: where the node stands.
    """

    device_type: str
    tp: int = 1
    ep: int = 1
    ep_local: bool = False
    zone: str = "default"

    @property
    def label(self) -> str:
        """For people: ``A100-40 tp2 ep4``."""
        parts = [self.device_type, f"tp{self.tp}"]
        if self.ep > 1:
            parts.append(f"ep{self.ep}{'' if self.ep_local else ' across nodes'}")
        if self.zone != "default":
            parts.append(f"in {self.zone}")
        return " ".join(parts)


class Replica(NamedTuple):
    """One tensor-parallel group; ``node`` counts the nodes of its type, None leaves it open."""

    kind: ReplicaKind
    node: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Rows ``first`` to ``end`` - 1 on the replicas that hold them.

    The order of the replicas is that of the gradient ring; neighbours share an expert group.

    Args:
        recompute: activations inside rows are rebuilt in the backward instead of kept.
    """

    first: int
    end: int
    replicas: tuple[Replica, ...]
    recompute: bool = False

    def __post_init__(self) -> None:
        if not self.replicas:
            raise InputError("a stage needs at least one replica")

    @cached_property
    def kinds(self) -> tuple[ReplicaKind, ...]:
        """The different kinds of replica, in order."""
        return tuple(dict.fromkeys(r.kind for r in self.replicas))

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.end - self.first


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A chain of stages that runs its own micro-batches.

    Args:
        microbatch: samples of a micro-batch on one replica of the first stage.
        microbatches: micro-batches per iteration; None covers an equal share of the global batch.
    """

    microbatch: int
    stages: tuple[Stage, ...]
    microbatches: int | None = None

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("a pipeline needs at least one stage")
        if self.microbatch < 1 or (self.microbatches is not None and self.microbatches < 1):
            raise InputError("micro-batch and number of micro-batches must be at least 1")

    @property
    def batch(self) -> int:
        """Samples of one micro-batch over all replicas of the first stage."""
        return self.microbatch * len(self.stages[0].replicas)


@dataclass(frozen=True, kw_only=True)
class PipelinePlan:
    """The pipelines of a training job.

    Args:
        zero1: optimizer state is shared over the replicas of each stage.
    """

    model: str
    global_batch: int
    pipelines: tuple[Pipeline, ...]
    zero1: bool = False

    def __post_init__(self) -> None:
        if not self.pipelines or self.global_batch < 1:
            raise InputError("a plan needs pipelines and a global batch of at least 1")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Micro-batches of every pipeline."""
        share = [p.batch * len(self.pipelines) for p in self.pipelines]
        return tuple(
            p.microbatches or -(-self.global_batch // s)
            for p, s in zip(self.pipelines, share, strict=True)
        )

    @property
    def samples(self) -> int:
        """Samples that an iteration trains."""
        return sum(p.batch * n for p, n in zip(self.pipelines, self.counts, strict=True))

    @property
    def excess(self) -> int:
        """Samples beyond the global batch; negative where some are left out."""
        return self.samples - self.global_batch

    def stages(self) -> Iterator[tuple[int, int, Stage]]:
        """All stages as (pipeline index, stage index, stage)."""
        for p, pipeline in enumerate(self.pipelines):
            for i, stage in enumerate(pipeline.stages):
                yield p, i, stage

    def devices_used(self) -> dict[str, int]:
        """Devices of each type that the plan uses."""
        used: Counter[str] = Counter()
        for _, _, stage in self.stages():
            for r in stage.replicas:
                used[r.kind.device_type] += r.kind.tp
        return dict(sorted(used.items()))

    def relabel(self, model: str, nodes: Mapping[tuple[str, int], int]) -> PipelinePlan:
        """The same plan for another name of the model and other numbers of the nodes.

        Args:
            model: the name.
            nodes: new number by (device type, old number).
        """

        def moved(r: Replica) -> Replica:
            return r if r.node is None else Replica(r.kind, nodes[r.kind.device_type, r.node])

        pipelines = tuple(
            replace(
                p,
                stages=tuple(
                    replace(s, replicas=tuple(moved(r) for r in s.replicas)) for s in p.stages
                ),
            )
            for p in self.pipelines
        )
        return replace(self, model=model, pipelines=pipelines)
