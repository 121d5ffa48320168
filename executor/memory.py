"""Peak memory of a rank: the allocator's on a GPU; on a CPU that of all tensors that live.

A resident process grows by whole arenas and shows little of a small model; what its tensors hold
is exact, the same on every run, and what a GPU's allocator would be asked for.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class PeakMemory:
    """The most that a rank's tensors hold while something runs.

    Args:
        modules: the model; its weights, buffers and gradients count.
        device: where it lives.
    """

    def __init__(self, modules: Iterable[nn.Module], device: torch.device) -> None:
        self._modules, self._device = tuple(modules), device
        self.bytes = 0

    @contextmanager
    def watch(self, *more: nn.Module) -> Iterator[None]:
        """Sets ``bytes`` to the peak inside of the block; on a CPU the block takes longer.

        Args:
            more: other modules that are there meanwhile.
        """
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            yield
            torch.cuda.synchronize(self._device)
            self.bytes = torch.cuda.max_memory_allocated(self._device)
            return
        with LiveTensors(tensors_of((*self._modules, *more))) as live:
            yield
        self.bytes = live.peak_bytes


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's stub
    """Counts the bytes of all tensors made inside, as long as they live.

    Args:
        known: tensors that are there already and count from the start.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's stub
        self.now_bytes = self.peak_bytes = 0
        self._sizes: dict[int, tuple[weakref.ref[torch.UntypedStorage], int]] = {}
        for tensor in known:
            self._count(tensor)

    def __torch_dispatch__(
        self,
        function: Any,  # noqa: ANN401 - an operator of torch
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operator gives
        """Runs an operator and counts what it made."""
        result = function(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        known = self._sizes.get(key)
        if known is not None and known[0]() is storage:
            return
        # Storages are freed with the last tensor on them: then their bytes are given back.
        self._sizes[key] = weakref.ref(storage, lambda _: self._free(key)), size
        self.now_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)

    def _free(self, key: int) -> None:
        _, size = self._sizes.pop(key)
        self.now_bytes -= size


def tensors_of(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    """Weights, buffers and gradients."""
    for module in modules:
        yield from module.buffers()
        for parameter in module.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
