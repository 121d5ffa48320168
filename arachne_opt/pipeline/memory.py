"""How much memory a device needs, as a rule with named constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arachne_opt.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule:
    """Bytes of one device of a stage.

    state = (resident + optimizer / shards) per parameter; activations = kept values of every
    micro-batch in flight. With recomputation a row keeps only its input, and the largest row of the
    stage is rebuilt once. ``shards`` is the number of replicas under ZeRO-1, else 1.

    Args:
        resident_bytes: per parameter: weights, gradients, buffers.
        optimizer_bytes: per parameter, the part that ZeRO-1 shards.
        activation_bytes: per kept activation value.
        runtime_bytes: of the runtime, without tensor parallelism.
        runtime_tp_bytes: the same with tensor parallelism.
    """

    name: str
    resident_bytes: float
    optimizer_bytes: float
    activation_bytes: float
    runtime_bytes: int
    runtime_tp_bytes: int

    def __post_init__(self) -> None:
        if min(self.resident_bytes, self.activation_bytes) <= 0 or self.optimizer_bytes < 0:
            raise InputError(f"a memory rule needs positive bytes, not {self}")
        if min(self.runtime_bytes, self.runtime_tp_bytes) < 0:
            raise InputError("runtime bytes must not be negative", where=f"rule {self.name}")

    def state_bytes(self, shards: int = 1) -> float:
        """Bytes per parameter when ``shards`` replicas share the optimizer state."""
        return self.resident_bytes + self.optimizer_bytes / shards

    def runtime(self, tp: int) -> int:
        """Bytes of the runtime on a device of a group of ``tp``."""
        return self.runtime_bytes if tp == 1 else self.runtime_tp_bytes

    def canonical(self) -> list[Any]:
        """The numbers as JSON values."""
        return [
            self.resident_bytes,
            self.optimizer_bytes,
            self.activation_bytes,
            self.runtime_bytes,
            self.runtime_tp_bytes,
        ]


# Fitted by eth-easl/sailor to measured fp32 training: 24 bytes a parameter (weights 4, gradients 4,
# two Adam moments 8, communication and copies 8), plus the CUDA and NCCL runtime.
MEASURED_FP32 = MemoryRule(
    name="measured fp32",
    resident_bytes=16,
    optimizer_bytes=8,
    activation_bytes=4,
    runtime_bytes=2_000_000_000,
    runtime_tp_bytes=3_000_000_000,
)

# Mixed precision with Adam: half-precision weights and gradients, fp32 master weights and two
# moments (Rajbhandari et al., ZeRO, 2020, section 3.1).
MIXED_PRECISION = MemoryRule(
    name="mixed precision",
    resident_bytes=4,
    optimizer_bytes=12,
    activation_bytes=2,
    runtime_bytes=2_000_000_000,
    runtime_tp_bytes=3_000_000_000,
)

MEMORY_RULES = {rule.name: rule for rule in (MEASURED_FP32, MIXED_PRECISION)}
