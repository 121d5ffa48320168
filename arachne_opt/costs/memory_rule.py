"""Model states as frameworks lay them out in mixed precision: 2 + 2 + 12 bytes per parameter."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.costs.tail import TailVolume
from arachne_opt.errors import InputError

DEFAULT_NODE_SIZE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule:
    """How model states lie on the devices.

    Args:
        weight_shards: devices that share one copy of the weights; likewise for the others.
        checkpointing: keep only the inputs of the layers and compute the rest again.
        reserve_share: share of the memory that the runtime, its buffers and fragmentation take;
            chosen so that all shapes at the published limits of HunyuanVideo fit 80 GiB. Most
            shapes one step above them fit by this model too: it is no sharp boundary.
    """

    weight_bytes: int = 2
    gradient_bytes: int = 2
    optimizer_bytes: int = 12
    weight_shards: int = 1
    gradient_shards: int = 1
    optimizer_shards: int = DEFAULT_NODE_SIZE
    checkpointing: bool = True
    reserve_share: float = 0.12

    def __post_init__(self) -> None:
        if min(self.weight_shards, self.gradient_shards, self.optimizer_shards) < 1:
            raise InputError(f"shards must be at least 1, not {self}")
        if not 0 <= self.reserve_share < 1:
            raise InputError(f"reserve_share lies between 0 and 1, not {self.reserve_share}")

    def model_states_bytes(self, parameters: int) -> int:
        """Weights, gradients and optimizer states of one device."""
        parts = (
            (self.weight_bytes, self.weight_shards),
            (self.gradient_bytes, self.gradient_shards),
            (self.optimizer_bytes, self.optimizer_shards),
        )
        return sum(-(-size * parameters // shards) for size, shards in parts)

    def tail_volume(self, parameters: int) -> TailVolume:
        """What gradient synchronisation and optimizer step move: states are read and written."""
        update = self.gradient_bytes + 2 * self.optimizer_bytes + self.weight_bytes
        return TailVolume(
            gradient_bytes=self.gradient_bytes * parameters,
            weight_bytes=self.weight_bytes * parameters,
            update_bytes=-(-update * parameters // self.optimizer_shards),
        )
