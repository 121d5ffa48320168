"""What the plan database keeps, as the rest of the program sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan with what is needed to trust, show and reuse it.

    Args:
        kind: ``cascade`` or ``pipeline``.
        fingerprint: digest of the canonical problem, the key of the cache.
        problem: the problem as it was asked, in JSON; the plan uses its numbering.
        status: ``optimal`` or ``feasible``.
        verdict: the checker's word, ``legal`` for all that is stored.
        time_limit_s: search time that was granted; decides whether a later request is content.
        id: given by the database, empty before.
        created_at: ISO 8601 in UTC, given by the database.
        stale: prices were replaced by a newer version since; told by the database.
        quarantine: why the plan is not used, None for a sound one; told by the database.
    """

    kind: str
    name: str
    fingerprint: str
    cluster_fingerprint: str
    cluster_name: str
    cost_version: str
    problem: Json
    plan: Json
    status: str
    objective_us: int
    bound_us: int
    solver: str
    seed: int
    wall_s: float
    time_limit_s: float
    verdict: str
    versions: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    created_at: str = ""
    stale: bool = False
    quarantine: str | None = None

    @property
    def gap(self) -> float | None:
        """(objective - bound) / bound, None without a bound."""
        if self.bound_us <= 0:
            return None
        return (self.objective_us - self.bound_us) / self.bound_us


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A stored plan without its problem and its placements, for lists."""

    id: str
    created_at: str
    kind: str
    name: str
    fingerprint: str
    cluster_name: str
    cost_version: str
    status: str
    objective_us: int
    bound_us: int
    solver: str
    seed: int
    wall_s: float
    time_limit_s: float
    verdict: str
    stale: bool = False
    quarantine: str | None = None

    @property
    def gap(self) -> float | None:
        """(objective - bound) / bound, None without a bound."""
        if self.bound_us <= 0:
            return None
        return (self.objective_us - self.bound_us) / self.bound_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """A cluster that plans were made for; ``description`` is what ``cluster_from_dict`` reads."""

    id: str
    created_at: str
    name: str
    fingerprint: str
    problems: int
    plans: int
    description: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One replay of a plan.

    Args:
        measured_us: makespan of the replay, from the first start to the last end.
        fidelity: measured over planned makespan.
        report: what the runner reported, in JSON.
    """

    plan_id: str
    status: str
    world_size: int
    planned_us: int
    measured_us: int
    report: Json
    id: str = ""
    created_at: str = ""

    @property
    def fidelity(self) -> float | None:
        """Measured over planned makespan, None for an empty plan."""
        return self.measured_us / self.planned_us if self.planned_us else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A stored run without its report, for lists; ``plan_name`` is the name of its plan."""

    id: str
    created_at: str
    plan_id: str
    plan_name: str
    status: str
    world_size: int
    planned_us: int
    measured_us: int

    @property
    def fidelity(self) -> float | None:
        """Measured over planned makespan, None for an empty plan."""
        return self.measured_us / self.planned_us if self.planned_us else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One measured task: a sample for a cost model.

    Args:
        batch: clips of the micro-batch; ``frames``, ``height``, ``width`` are their shape.
        source: ``profile`` for a measurement alone, ``replay`` for one inside a run.
        recompute: the backward pass computed activations again, by choice of the plan.
    """

    model: str
    task: str
    device_type: str
    degree: int
    batch: int
    frames: int
    height: int
    width: int
    text_tokens: int
    duration_us: int
    memory_bytes: int
    source: str
    recompute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """A learned policy.

    Args:
        name: what it is for, ``cascades`` or ``templates``.
        version: made of the digest of its weights.
        metrics: how it was made and how it scored.
        artifact: its file.
        id: given by the database, empty before.
        created_at: ISO 8601 in UTC, given by the database.
    """

    name: str
    version: str
    metrics: Mapping[str, Any]
    artifact: bytes
    id: str = ""
    created_at: str = ""
