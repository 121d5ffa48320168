"""Peak memory of a rank: exact on a GPU, growth of the resident process on Linux."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): resets VmHWM to the current resident size


class PeakMemory:
    """Peak since the last reset. On a CPU what the process held beside the weights is left out.

    Args:
        modules: the model, just made; its weights count.
        device: where it lives.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        self._device = device
        tensors = [t for m in modules for t in (*m.parameters(), *m.buffers())]
        weights = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        self._base = max(0, _resident("VmRSS") - weights)

    def reset(self) -> None:
        """Starts a new measurement."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        with suppress(OSError):  # not Linux, or not allowed: the peak is then of the whole life
            _CLEAR.write_text(_RESET_PEAK, encoding="ascii")

    def peak_bytes(self) -> int:
        """The peak; 0 where it is not known."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return max(0, _resident("VmHWM") - self._base)


def _resident(field: str) -> int:
    with suppress(OSError):
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
    return 0
