"""A large model as rows: embedding, blocks, head; what one row holds, keeps and sends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.suggest import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSizes:
    """What one device of a tensor-parallel group of ``tp`` holds, row by row.

    Args:
        parameters: parameters outside the experts.
        kept: activation values that a row keeps for its backward, per sample.
        expert_parameters: parameters of all experts of a row; a device with expert degree ep holds
            one ep-th of them. Empty for a dense model.
    """

    tp: int
    parameters: tuple[int, ...]
    kept: tuple[int, ...]
    expert_parameters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(self.parameters), len(self.kept)}
        if self.expert_parameters:
            lengths.add(len(self.expert_parameters))
        if self.tp < 1 or len(lengths) != 1:
            raise InputError(f"sizes for tp {self.tp} have {sorted(lengths)} rows")
        if min((*self.parameters, *self.kept, *self.expert_parameters)) < 0:
            raise InputError(f"sizes for tp {self.tp} must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The mixture of experts in a model.

    Args:
        count: routed experts of a row.
        top_k: experts that a token visits.
        imbalance: work of the fullest device over the mean when experts are spread.
        parameter_bytes: gradient bytes of all experts of each row, 0 for dense rows.
        exchange_bytes: bytes of one sample's tokens times ``top_k``, which an all-to-all moves
            where the experts lie elsewhere; 0 for dense rows.
    """

    count: int
    top_k: int
    imbalance: float
    parameter_bytes: tuple[int, ...]
    exchange_bytes: tuple[int, ...]

    def __post_init__(self) -> None:
        if not (1 <= self.top_k <= self.count and self.imbalance >= 1):
            what = f"{self.top_k} of {self.count} experts with imbalance {self.imbalance}"
            raise InputError(what, hint="1 <= top_k <= experts and an imbalance of at least 1")


@dataclass(frozen=True, kw_only=True)
class RowModel:
    """A model cut into rows; pipelines hold consecutive ones. Row 0 embeds, the last is the head.

    Args:
        parameter_bytes: gradient bytes of each whole row, without experts.
        output_bytes: what each row sends on, per sample; the gradient that comes back is as large.
        sizes: one entry per tensor-parallel degree.
        dtype_bytes: bytes of an activation value.
    """

    name: str
    sequence_length: int
    dtype_bytes: int
    parameter_bytes: tuple[int, ...]
    output_bytes: tuple[int, ...]
    sizes: tuple[RowSizes, ...]
    experts: Experts | None = None

    def __post_init__(self) -> None:
        where = f"model {self.name}"
        if not self.sizes or len(self.parameter_bytes) < 1:
            raise InputError("a model needs rows and sizes of at least one tp", where=where)
        if self.sequence_length < 1 or self.dtype_bytes < 1:
            raise InputError("sequence length and dtype bytes must be positive", where=where)
        lengths = {len(self.parameter_bytes), len(self.output_bytes)}
        lengths |= {len(s.parameters) for s in self.sizes}
        if self.experts is not None:
            lengths |= {len(self.experts.parameter_bytes), len(self.experts.exchange_bytes)}
        if len(lengths) > 1:
            raise InputError(f"the tables have {sorted(lengths)} rows", where=where)
        if len({s.tp for s in self.sizes}) < len(self.sizes):
            raise InputError("two size tables of one tp", where=where)

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return len(self.parameter_bytes)

    @cached_property
    def sizes_by_tp(self) -> dict[int, RowSizes]:
        """Sizes by tensor-parallel degree."""
        return {s.tp: s for s in self.sizes}

    @property
    def expert_degrees(self) -> tuple[int, ...]:
        """Degrees over which the experts can be spread evenly: 1 for a dense model."""
        if self.experts is None:
            return (1,)
        count = self.experts.count
        return tuple(d for d in range(1, count + 1) if count % d == 0)

    def size_classes(self) -> tuple[int, ...]:
        """A number for each row, equal for rows of equal sizes, counted from 0 in order."""
        columns: list[tuple[float, ...]] = [self.parameter_bytes, self.output_bytes]
        for s in self.sizes:
            columns += [s.parameters, s.kept]
            columns += [s.expert_parameters] if s.expert_parameters else []
        if self.experts is not None:
            columns += [self.experts.parameter_bytes, self.experts.exchange_bytes]
        return classes_of(tuple(zip(*columns, strict=True)))

    def canonical(self) -> dict[str, Any]:
        """JSON values that are equal for models that differ in name only."""
        sizes = [
            [s.tp, list(s.parameters), list(s.kept), list(s.expert_parameters)] for s in self.sizes
        ]
        experts = self.experts and [
            self.experts.count,
            self.experts.top_k,
            self.experts.imbalance,
            list(self.experts.parameter_bytes),
            list(self.experts.exchange_bytes),
        ]
        return {
            "sequence_length": self.sequence_length,
            "dtype_bytes": self.dtype_bytes,
            "parameter_bytes": list(self.parameter_bytes),
            "output_bytes": list(self.output_bytes),
            "sizes": sorted(sizes),
            "experts": experts,
        }


def classes_of(values: tuple[tuple[float, ...], ...]) -> tuple[int, ...]:
    """A number for each value, equal for equal values, counted from 0 in order."""
    numbers: dict[tuple[float, ...], int] = {}
    return tuple(numbers.setdefault(value, len(numbers)) for value in values)


def check_device_type(name: str, known: tuple[str, ...], where: str) -> None:
    """Raises InputError where a type has no table; names those that have one."""
    if name not in known:
        what = f"no profile for type {name}{did_you_mean(name, known)}: "
        what += f"known types {', '.join(known) or 'none'}"
        raise InputError(what, where=where, hint="--allow-estimates")
