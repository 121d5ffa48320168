"""Measurements by ranks that the user's own torchrun has started; every rank calls the same."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist

from arachne_opt.errors import InputError
from arachne_opt.executor.device_job import DeviceJob
from arachne_opt.executor.device_worker import TIMEOUT_S, DeviceMeter
from arachne_opt.executor.distributed import meet, pick_device, start_group
from arachne_opt.executor.launch import Progress, ProgressCallback, threads_for
from arachne_opt.executor.measure import MeasureJob
from arachne_opt.executor.measure_worker import Meter
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.records import Measurement

Value = TypeVar("Value")


def measure_tasks_here(job: MeasureJob, on_progress: ProgressCallback) -> tuple[Measurement, ...]:
    """Measurements of tasks, the same on every rank."""
    _join(job.device, job.threads_per_rank, max(job.degrees))
    total = len(job.work())

    def on_done(number: int, row: Measurement) -> None:
        text = f"{row.task} at degree {row.degree}: {row.duration_us} us"
        on_progress(Progress(done=number, total=total, text=text))

    return Meter(job, Watchdog(dist.get_rank())).run(on_done)


def measure_devices_here(job: DeviceJob, on_progress: ProgressCallback) -> tuple[Measurement, ...]:
    """Measurements of rows or links, the same on every rank."""
    _join(job.device, job.threads_per_rank, job.widest)

    def on_done(number: int, label: str, median_us: int) -> None:
        text = f"{label}: {median_us} us"
        on_progress(Progress(done=number, total=job.count, text=text))

    return DeviceMeter(job, Watchdog(dist.get_rank())).run(on_done)


def agreed(value: Value) -> Value:
    """What the first rank says, on all ranks."""
    if not dist.is_initialized():
        _join("auto", 0, 1)
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def leave() -> NoReturn:
    """Ends this rank when all have come so far."""
    with suppress(RuntimeError):  # who is gone already is no loss
        meet()
    sys.stdout.flush()
    sys.stderr.flush()
    # A normal exit would take down torch's threads in an order that now and then aborts.
    os._exit(0)


def _join(device: str, threads: int, widest: int) -> None:
    if not dist.is_initialized():
        local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(threads_for(local, threads))
        start_group(pick_device(device), TIMEOUT_S)
    if widest > dist.get_world_size():
        what = f"degree {widest} is wider than the {dist.get_world_size()} ranks of torchrun"
        raise InputError(what, hint=f"degrees up to {dist.get_world_size()}")
