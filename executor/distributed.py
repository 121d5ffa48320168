"""Setting up a rank: its device, its threads, the default process group."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from arachne_opt.errors import InputError, RunError


def pick_device(wanted: str) -> torch.device:
    """The device of this rank.

    Raises:
        InputError: CUDA was asked for and is not there, or has fewer devices than ranks here.
    """
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise InputError("CUDA is not available", hint="--device cpu")
    if wanted == "cpu" or not available:
        return torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if local >= torch.cuda.device_count():
        what = f"rank {local} of this machine has no GPU of its own"
        raise InputError(f"{what}: there are {torch.cuda.device_count()}", hint="--device cpu")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def start_group(
    device: torch.device, timeout_s: float, look: Callable[[Any, int], None] | None = None
) -> None:
    """Joins the ranks that torchrun started; CPU tensors go through gloo, GPU ones through NCCL.

    Args:
        device: of this rank.
        timeout_s: of the default group.
        look: is called with the ranks' common store and their number before they are joined; what
            it raises ends the run.
    """
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    if look is None:
        dist.init_process_group(backend, timeout=timeout)
        return
    store, rank, world_size = next(rendezvous("env://", timeout=timeout))
    look(store, world_size)
    dist.init_process_group(backend, timeout=timeout, store=store, rank=rank, world_size=world_size)


def meet() -> None:
    """Returns when all ranks are here; blocks in gloo, which does not spin."""
    dist.all_reduce(torch.zeros(1))


def gather(values: Sequence[float]) -> list[list[float]]:
    """The numbers of each rank, on every rank, in double precision."""
    own = torch.tensor(values, dtype=torch.float64)
    rows = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, own)
    return [row.tolist() for row in rows]


def synchronize(device: torch.device) -> None:
    """Waits for the work queued on a GPU, so that a clock read next is true."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock:
    """Microseconds since the ranks last met."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._zero = time.perf_counter()

    def restart(self) -> None:
        """Meets all ranks and counts from now."""
        synchronize(self._device)
        meet()
        self._zero = time.perf_counter()

    def now_us(self) -> int:
        """Time since then, with all queued work done."""
        synchronize(self._device)
        return round((time.perf_counter() - self._zero) * 1e6)


def flight_record() -> bytes | None:
    """NCCL's record of its last collectives; None where torch has no NCCL or cannot give it."""
    if not (dist.is_initialized() and dist.is_nccl_available() and torch.cuda.is_available()):
        return None
    dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace", None)
    return dump() if dump is not None else None


class Stopwatch:
    """Adds up the time that passed inside its blocks."""

    def __init__(self) -> None:
        self._total_s = 0.0

    def take_us(self) -> int:
        """The time since the last call."""
        total_s, self._total_s = self._total_s, 0.0
        return round(total_s * 1e6)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Counts the time of a block."""
        begin_s = time.perf_counter()
        try:
            yield
        finally:
            self._total_s += time.perf_counter() - begin_s


# Exchanges of the task at hand; a rank runs one task at a time. On a GPU, where exchanges are only
# queued, it stays near 0.
EXCHANGES = Stopwatch()


def require_group() -> None:
    """Refuses to go on where the ranks have not been joined."""
    if not dist.is_initialized():
        hint = "torchrun, or torch.distributed.init_process_group first"
        raise RunError("there is no process group", hint=hint)
