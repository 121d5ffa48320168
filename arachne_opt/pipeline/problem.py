"""The pipeline problem: a model and a global batch on a mixed cluster, with all prices."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from arachne_opt.canonical import digest
from arachne_opt.cluster import Cluster, Node
from arachne_opt.errors import InputError
from arachne_opt.pipeline.memory import MEASURED_FP32, MemoryRule
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.rows import RowModel, check_device_type
from arachne_opt.pipeline.tables import PriceTables

PROBLEM_FORMAT = "arachne.pipeline-problem/1"


class Schedule(enum.StrEnum):
    """Order of forwards and backwards on a stage."""

    ONE_F_ONE_B = "1f1b"
    GPIPE = "gpipe"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOptions:
    """What a plan may do.

    Args:
        allow_excess: train a few samples more than the global batch, where it does not divide.
        recomputation: stages may rebuild activations in the backward.
        zero1: optimizer state may be shared over the replicas of a stage.
        max_tp: widest tensor-parallel group; None leaves it to tables and nodes.
        microbatches: sizes to consider; None takes all that have tables.
        max_stages: longest pipeline to consider; None leaves it to the number of rows.
        max_pipelines: most pipelines to consider; None leaves it to the devices.
    """

    allow_excess: bool = False
    recomputation: bool = False
    zero1: bool = False
    max_tp: int | None = None
    microbatches: tuple[int, ...] | None = None
    max_stages: int | None = None
    max_pipelines: int | None = None

    def __post_init__(self) -> None:
        limits = (self.max_tp, self.max_stages, self.max_pipelines, *(self.microbatches or ()))
        if any(limit is not None and limit < 1 for limit in limits):
            raise InputError("limits and micro-batches must be at least 1")
        if self.microbatches is not None and not self.microbatches:
            raise InputError("no micro-batch is left to consider")

    def canonical(self) -> list[Any]:
        """The choices as JSON values."""
        return [
            self.allow_excess,
            self.recomputation,
            self.zero1,
            self.max_tp,
            sorted(set(self.microbatches)) if self.microbatches else None,
            self.max_stages,
            self.max_pipelines,
        ]


@dataclass(frozen=True, kw_only=True)
class PipelineProblem:
    """Which pipelines train ``global_batch`` samples of a model per iteration.

    Args:
        tables: step times and network curves of the types in the cluster.
        memory: rule for the memory of a device.
        cost_version: version of what the tables come from; part of the key of a plan.
        notes: assumptions behind the tables, shown with every plan.
    """

    name: str
    cluster: Cluster
    model: RowModel
    global_batch: int
    tables: PriceTables
    memory: MemoryRule = MEASURED_FP32
    options: PipelineOptions = field(default_factory=PipelineOptions)
    cost_version: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.global_batch < 1:
            raise InputError("the global batch must be at least 1", where=self.name)
        rows = {len(s.forward_s) for s in self.tables.steps}
        if rows - {self.model.row_count}:
            what = f"step times of {sorted(rows)} rows for {self.model.row_count} of the model"
            raise InputError(what, where=self.name)
        for kind in self.cluster.device_types:
            check_device_type(kind, self.tables.device_types, self.name)
        for step in self.tables.steps:
            if step.tp not in self.model.sizes_by_tp:
                raise InputError(f"step times but no sizes for tp {step.tp}", where=self.name)

    @cached_property
    def nodes_of_type(self) -> dict[str, tuple[Node, ...]]:
        """Nodes of each device type in the order of the cluster: a plan's node numbers."""
        found: dict[str, list[Node]] = {}
        for node in self.cluster.nodes:
            found.setdefault(node.device_type.name, []).append(node)
        return {kind: tuple(nodes) for kind, nodes in found.items()}

    def canonical_nodes(self) -> dict[tuple[str, int], int]:
        """Canonical number of every node by (device type, number); equal nodes keep their order."""
        numbers: dict[tuple[str, int], int] = {}
        for kind, nodes in self.nodes_of_type.items():
            order = sorted(range(len(nodes)), key=lambda n: nodes[n].signature())
            numbers |= {(kind, old): new for new, old in enumerate(order)}
        return numbers

    def canonical(self) -> dict[str, Any]:
        """JSON values equal for problems that differ in names and in the order of equals only."""
        return {
            "format": PROBLEM_FORMAT,
            "cluster": self.cluster.canonical(),
            "model": self.model.canonical(),
            "global_batch": self.global_batch,
            "tables": self.tables.canonical(),
            "memory": self.memory.canonical(),
            "options": self.options.canonical(),
            "cost_version": self.cost_version,
        }

    def fingerprint(self) -> str:
        """Key of the problem in the plan database."""
        return digest(self.canonical())


def to_canonical(plan: PipelinePlan, problem: PipelineProblem) -> PipelinePlan:
    """The plan in the canonical numbering of its problem, as it is stored."""
    return plan.relabel(problem.fingerprint(), problem.canonical_nodes())


def from_canonical(plan: PipelinePlan, problem: PipelineProblem) -> PipelinePlan:
    """A stored plan in the numbering of a problem with the same fingerprint."""
    back = {(kind, new): old for (kind, old), new in problem.canonical_nodes().items()}
    return plan.relabel(problem.model.name, back)
