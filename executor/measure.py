"""Measures tasks alone, at every degree, on the ranks at hand: samples for a table cost model.

Public: ``MeasureJob``, ``measure_local(job, world_size, on_progress=...)``. The JSON forms are
``arachne.measure-job/1`` and ``arachne.measure-report/1``. Knows no torch; the ranks run
``measure_worker``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from arachne_opt.errors import InputError
from arachne_opt.executor.job import DEVICES, TASK_CHAIN, TASKS
from arachne_opt.executor.job_json import (
    batch_from_json,
    batch_to_json,
    model_from_json,
    model_to_json,
)
from arachne_opt.executor.launch import ProgressCallback, forks, launch
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.pixel_files import check_files
from arachne_opt.fields import Fields
from arachne_opt.records import Measurement
from arachne_opt.workload import MicroBatch

MEASURE_FORMAT = "arachne.measure-job/1"
MEASURE_REPORT_FORMAT = "arachne.measure-report/1"

_PLAIN = ("warmup", "repeats", "seed", "threads_per_rank", "device", "device_type", "recompute")
_JOB = ("format", "model", "batches", "degrees", "tasks", *_PLAIN)


class Work(NamedTuple):
    """One measurement; ``recompute`` where activations are computed again by choice."""

    batch: MicroBatch
    task: str
    degree: int
    recompute: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureJob:
    """Which tasks to measure.

    Args:
        batches: one micro-batch per shape of interest.
        degrees: degrees to measure; those that a task cannot take are left out for that task.
        warmup: runs before the clock counts; memory is watched in the first one, or in one more.
        repeats: measured runs; the median is kept.
        device_type: name under which the measurements are kept.
        recompute: measure denoise twice, activations kept and computed again, so that a plan can
            choose.
    """

    model: ModelChoice
    batches: tuple[MicroBatch, ...]
    degrees: tuple[int, ...]
    tasks: tuple[str, ...] = TASK_CHAIN
    warmup: int = 1
    repeats: int = 3
    seed: int = 0
    threads_per_rank: int = 0
    device: str = "auto"
    device_type: str = "CPU"
    recompute: bool = False

    def __post_init__(self) -> None:
        if not self.batches or not self.degrees or min(self.degrees) < 1:
            raise InputError("a measurement needs micro-batches and degrees of at least 1")
        if strange := [task for task in self.tasks if task not in TASKS]:
            raise InputError(f"unknown task {strange[0]!r}", hint=" or ".join(TASKS))
        if self.repeats < 1 or self.warmup < 0 or self.threads_per_rank < 0:
            raise InputError("repeats must be positive, warmup and threads not negative")
        if self.recompute and self.model.checkpointing:
            raise InputError("the model computes its activations again always, there is no choice")
        if self.device not in DEVICES:
            raise InputError(f"unknown device {self.device!r}", hint=" or ".join(DEVICES))
        config = self.model.config()
        for batch in self.batches:
            config.latent_size(batch.shape)

    def degrees_of(self, task: str, batch: MicroBatch) -> tuple[int, ...]:
        """The degrees that a task of a micro-batch can take."""
        config = self.model.config()
        if task != "denoise":
            return self.degrees
        legal = config.legal_degrees(max(self.degrees))
        tokens = config.token_count(batch.shape)
        return tuple(k for k in self.degrees if k in legal and k <= tokens)

    def work(self) -> tuple[Work, ...]:
        """What to measure, in order."""
        return tuple(
            Work(batch, task, degree, recompute)
            for batch in self.batches
            for task in self.tasks
            for degree in self.degrees_of(task, batch)
            for recompute in ((False, True) if self.recompute and task == "denoise" else (False,))
        )


def measure_local(
    job: MeasureJob, world_size: int, *, on_progress: ProgressCallback | None = None
) -> tuple[Measurement, ...]:
    """Measurements made by ``world_size`` processes on this machine.

    Raises:
        InputError: a degree is wider than the ranks.
        RunError: a rank failed.
    """
    if max(job.degrees) > world_size:
        what = f"degree {max(job.degrees)} is wider than the {world_size} ranks"
        raise InputError(what, hint=f"degrees up to {world_size}")
    check_files(job.batches, job.model.config())
    forked = forks(job.device)
    value = launch(measure_job_to_json(job), world_size, on_progress=on_progress, forked=forked)
    return measurements_from_json(value)


def measure_job_to_json(job: MeasureJob) -> dict[str, Any]:
    """JSON values that ``measure_job_from_json`` reads back to an equal job."""
    return {
        "format": MEASURE_FORMAT,
        "model": model_to_json(job.model),
        "batches": [batch_to_json(batch) for batch in job.batches],
        "degrees": list(job.degrees),
        "tasks": list(job.tasks),
        **{key: getattr(job, key) for key in _PLAIN},
    }


def measure_job_from_json(value: object, where: str = "job") -> MeasureJob:
    """Reads a job back.

    Raises:
        InputError: another format, an unknown or missing key, or a wrong type.
    """
    top = Fields(value, where, _JOB)
    top.require_format(MEASURE_FORMAT)
    batches = tuple(
        batch_from_json(raw, f"{where}: micro-batch {index}")
        for index, raw in enumerate(top.items("batches"))
    )
    return MeasureJob(
        model=model_from_json(top.raw("model"), f"{where}: model"),
        batches=batches,
        degrees=top.integers("degrees", minimum=1),
        tasks=tuple(str(task) for task in top.items("tasks")),
        warmup=top.integer("warmup", 1),
        repeats=top.integer("repeats", 3, minimum=1),
        seed=top.integer("seed", 0),
        threads_per_rank=top.integer("threads_per_rank", 0),
        device=top.text("device", "auto"),
        device_type=top.text("device_type", "CPU"),
        recompute=top.flag("recompute"),
    )


def measurements_to_json(rows: tuple[Measurement, ...]) -> dict[str, Any]:
    """Measurements as JSON values."""
    return {"format": MEASURE_REPORT_FORMAT, "measurements": [asdict(row) for row in rows]}


def measurements_from_json(value: object) -> tuple[Measurement, ...]:
    """Reads measurements back.

    Raises:
        InputError: another format, or a field is missing.
    """
    if not isinstance(value, dict) or value.get("format") != MEASURE_REPORT_FORMAT:
        raise InputError(f"not a report of format {MEASURE_REPORT_FORMAT!r}")
    try:
        return tuple(Measurement(**row) for row in value["measurements"])
    except (KeyError, TypeError) as error:
        raise InputError(f"malformed report: {error}") from error
