"""Costs of another model, corrected by what a training measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from arachne_opt.canonical import digest
from arachne_opt.cascade.problem import Option
from arachne_opt.cluster import Cluster, DeviceType
from arachne_opt.cost_version import cost_version, lineage
from arachne_opt.costs.base import CostModel
from arachne_opt.errors import InputError
from arachne_opt.models import ModelSpec
from arachne_opt.units import PPM
from arachne_opt.workload import MicroBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A factor on durations.

    Args:
        label: clips and shape as in ``MicroBatch.label``; empty for all that have no own factor.
        factor_ppm: new over old duration, in millionths.
    """

    task: str
    device_type: str
    degree: int
    factor_ppm: int
    label: str = ""

    def __post_init__(self) -> None:
        if self.factor_ppm < 1:
            raise InputError(f"a correction is a positive factor, not {self.factor_ppm} ppm")


@dataclass(frozen=True, kw_only=True)
class CorrectedCostModel:
    """Durations of a base model times factors; memory and sizes are the base's.

    A degree that was never measured keeps the factor of the nearest measured one: what changed is
    the machine more often than one degree.
    """

    base: CostModel
    corrections: tuple[Correction, ...]

    @property
    def model(self) -> ModelSpec:
        """The model of the base."""
        return self.base.model

    @cached_property
    def version(self) -> str:
        """Digest of the base and all factors."""
        # Corrections of the same prices replace each other.
        what = (self.model.name, lineage(self.base.version) or self.base.version)
        return cost_version("corrected", what, digest(self.description()))

    @property
    def task_names(self) -> tuple[str, ...]:
        """The tasks of the base."""
        return self.base.task_names

    def description(self) -> dict[str, Any]:
        """What made this version, for the database."""
        rows = sorted(asdict(row).items() for row in self.corrections)
        return {"base": self.base.version, "corrections": [dict(row) for row in rows]}

    def options(self, task: str, batch: MicroBatch, device_type: DeviceType) -> tuple[Option, ...]:
        """The base's options with corrected durations."""
        return tuple(
            replace(
                option,
                duration_us=-(
                    -option.duration_us
                    * self._factor_ppm(task, batch.label, device_type.name, option.degree)
                    // PPM
                ),
            )
            for option in self.base.options(task, batch, device_type)
        )

    def why_illegal(self, task: str, degree: int) -> str | None:
        """The word of the base."""
        return self.base.why_illegal(task, degree)

    def input_bytes(self, task: str, batch: MicroBatch) -> int:
        """The size of the base."""
        return self.base.input_bytes(task, batch)

    def tail_us(self, cluster: Cluster) -> int:
        """The time of the base."""
        return self.base.tail_us(cluster)

    def resident_bytes(self, device_type: DeviceType) -> int:
        """The size of the base."""
        return self.base.resident_bytes(device_type)

    def _factor_ppm(self, task: str, label: str, device_type: str, degree: int) -> int:
        exact = self._factors.get((task, device_type, degree, label))
        if exact is not None:
            return exact
        known = self._degrees.get((task, device_type), [])
        if not known:
            return PPM
        nearest = min(known, key=lambda k: (abs(k - degree), k))
        return self._factors[task, device_type, nearest, ""]

    @cached_property
    def _factors(self) -> dict[tuple[str, str, int, str], int]:
        return {
            (row.task, row.device_type, row.degree, row.label): row.factor_ppm
            for row in self.corrections
        }

    @cached_property
    def _degrees(self) -> dict[tuple[str, str], list[int]]:
        """Degrees with a factor for all shapes."""
        found: dict[tuple[str, str], list[int]] = {}
        for row in self.corrections:
            if not row.label:
                found.setdefault((row.task, row.device_type), []).append(row.degree)
        return found
