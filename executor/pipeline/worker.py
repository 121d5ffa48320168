"""A rank's share of a pipeline job: look at the devices, join, train, report."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from arachne_opt.errors import InputError
from arachne_opt.executor.distributed import pick_device, start_group
from arachne_opt.executor.launch import threads_for
from arachne_opt.executor.pipeline.devices import (
    Store,
    refuse_other_devices,
    see_device,
    share_devices,
)
from arachne_opt.executor.pipeline.job import PipelineJob, job_from_json
from arachne_opt.executor.pipeline.report import StepReport, report_to_json
from arachne_opt.executor.pipeline.trainer import PipelineTrainer
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.units import format_seconds

# Done, total, text, note.
Say = Callable[[int, int, str, str], None]


def run_pipeline(
    value: object, *, rank: int, attempt: int, watchdog: Watchdog, say: Say
) -> dict[str, Any] | None:
    """The report as JSON on rank 0, None elsewhere.

    Raises:
        InputError: the job, or the devices, are not those of the plan.
        RunError: a rank failed.
    """
    job = job_from_json(value)
    device = torch.device("cpu") if job.emulated else pick_device(job.device)
    torch.set_num_threads(threads_for(int(os.environ["LOCAL_WORLD_SIZE"]), job.threads_per_rank))

    def look(store: Store, world_size: int) -> None:
        refuse_other_size(job, world_size)
        if not (job.emulated or job.any_device):
            refuse_other_devices(job, share_devices(store, see_device(rank, device), world_size))

    start_group(device, job.timeout_s, look)
    trainer = PipelineTrainer(job, device, watchdog=watchdog, resume=attempt > 0)
    if attempt and rank == 0:
        note = f"restart {attempt}: a rank failed; going on after step {trainer.first_step}"
        trainer.notes.append(f"{note}; the report begins there")
        say(trainer.first_step, job.steps, "restarted", note)
    told = list(trainer.notes)

    def tell(step: StepReport) -> None:
        fresh = trainer.notes[len(told) :]
        told.extend(fresh)
        _tell(job, step, "; ".join(fresh), say)

    report = trainer.run(tell if rank == 0 else None)
    return None if report is None else report_to_json(report)


def refuse_other_size(job: PipelineJob, world_size: int) -> None:
    """Refuses a run whose number of ranks is not that of the plan.

    Raises:
        InputError: it is not.
    """
    if job.world_size != world_size:
        what = f"the plan is for {job.world_size} devices, this run has {world_size} ranks"
        raise InputError(what, hint=f"{job.world_size} ranks")


def _tell(job: PipelineJob, step: StepReport, note: str, say: Say) -> None:
    took, planned = format_seconds(step.measured_us), format_seconds(step.planned_us)
    text = f"{took} (planned {planned})"
    if not job.emulated:
        speed = step.tokens / max(1, step.measured_us) * 1e6
        text = f"loss {step.loss:.6g}, {text}, {speed:.0f} tokens/s"
    say(step.step + 1, job.steps, text, note)
