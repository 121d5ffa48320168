"""Are the devices those of the plan? Every rank says what it has before the first collective."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch

from arachne_opt.cluster import DeviceType
from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.job import PipelineJob
from arachne_opt.units import format_bytes

# Drivers show a little less than is sold; models that differ in memory differ by much more.
_MEMORY_SLACK = 0.15

_SHOWN = 8


class Store(Protocol):
    """What all ranks can write to and read before they are joined: torch's stores."""

    def set(self, key: str, value: str) -> None:
        """Keeps a value."""

    def get(self, key: str) -> bytes:
        """The value of a key."""

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Returns when all keys are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDevice:
    """What a rank finds on its machine.

    Args:
        name: as the driver says, or ``CPU``.
        free_bytes: memory that this rank can take; of a CPU, its share of the free memory.
    """

    rank: int
    host: str
    name: str
    total_bytes: int
    free_bytes: int

    def __str__(self) -> str:
        """For people: ``Tesla V100-SXM2-16GB with 16.0 GiB``."""
        return f"{self.name} with {format_bytes(self.total_bytes)}"


def see_device(rank: int, device: torch.device) -> SeenDevice:
    """What this rank has."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        name = torch.cuda.get_device_name(device)
    else:
        name, total = "CPU", _page_bytes("SC_PHYS_PAGES")
        free = _available_bytes() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    host = socket.gethostname()
    return SeenDevice(rank=rank, host=host, name=name, total_bytes=total, free_bytes=free)


def share_devices(store: Store, own: SeenDevice, world_size: int) -> tuple[SeenDevice, ...]:
    """What all ranks have; goes over the store, no collective is needed."""
    store.set(_key(own.rank), json.dumps(asdict(own)))
    keys = [_key(rank) for rank in range(world_size)]
    store.wait(keys, timedelta(seconds=600))
    return tuple(SeenDevice(**json.loads(store.get(key))) for key in keys)


def refuse_other_devices(job: PipelineJob, devices: Sequence[SeenDevice]) -> None:
    """Refuses a run whose devices are not those of the plan, or lack the memory that it needs.

    Raises:
        InputError: says which rank has what, and what the plan wants.
    """
    types = job.problem.cluster.device_types
    complaints = []
    for member, seen in zip(job.layout.members, devices, strict=True):
        wanted = types[member.kind.device_type]
        where = f"rank {seen.rank} ({seen.host})"
        if not is_of_type(seen, wanted):
            complaints.append(f"{where} has {seen}, the plan wants {wanted.name}")
        elif (need := job.needed_bytes(seen.rank)) > seen.free_bytes:
            free = format_bytes(seen.free_bytes)
            complaints.append(
                f"{where} needs {format_bytes(need)}, its {seen.name} has {free} free"
            )
    if not complaints:
        return
    more = len(complaints) - _SHOWN
    listed = "; ".join(complaints[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    what = f"the devices are not those of the plan on {len(complaints)} of {len(devices)} ranks"
    hint = "the rank order that --dry-run prints, a plan for these devices, or --any-device"
    raise InputError(f"{what}: {listed}", where=f"plan for {job.plan.model}", hint=hint)


def is_of_type(seen: SeenDevice, wanted: DeviceType) -> bool:
    """Whether a device is of a type: all words of the type's name are in the device's name.

    A last word that is the type's memory in GiB, as in ``A100-40``, is compared with the memory.
    """
    if wanted.name == "CPU" or seen.name == "CPU":
        return seen.name == wanted.name
    words = wanted.name.split("-")
    if words[-1].isdigit() and int(words[-1]) == round(wanted.memory_bytes / 2**30):
        words.pop()
        if abs(seen.total_bytes - wanted.memory_bytes) > _MEMORY_SLACK * wanted.memory_bytes:
            return False
    return all(_has_word(seen.name, word) for word in words)


def _has_word(name: str, word: str) -> bool:
    """``A100`` is in ``A100-SXM4-40GB``, ``L4`` is not in ``L40S``, ``GH`` is in ``GH200``."""
    digits = "" if any(c.isdigit() for c in word) else r"\d*"
    pattern = rf"(?<![A-Z0-9]){re.escape(word)}{digits}(?![A-Z0-9])"
    return re.search(pattern, name, re.IGNORECASE) is not None


def _available_bytes() -> int:
    """Memory that is free or would be, if the system dropped the files that it keeps in it."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _page_bytes("SC_AVPHYS_PAGES")


def _page_bytes(name: str) -> int:
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")


def _key(rank: int) -> str:
    return f"arachne-device/{rank}"
