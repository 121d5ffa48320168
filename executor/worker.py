"""What torchrun starts on every rank: ``python -m arachne_opt.executor.worker JOB REPORT``."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from arachne_opt.errors import ArachneError, InputError, RunError
from arachne_opt.executor.device_job import DEVICE_FORMAT, device_job_from_json
from arachne_opt.executor.failures import hopeless, write_failure
from arachne_opt.executor.job_json import JOB_FORMAT, job_from_json, read_json
from arachne_opt.executor.launch import PROGRESS_MARK, threads_for
from arachne_opt.executor.measure import (
    MEASURE_FORMAT,
    measure_job_from_json,
    measurements_to_json,
)
from arachne_opt.executor.narrator import Narrator
from arachne_opt.executor.pipeline.job import PIPELINE_JOB_FORMAT
from arachne_opt.executor.positions import PositionBoard
from arachne_opt.executor.report import report_to_json
from arachne_opt.executor.slurm import take_rank_from_slurm
from arachne_opt.executor.step_log import StepLog, step_log_path
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.units import format_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What torchrun told this rank; ``attempt`` counts the restarts so far."""

    report_path: Path
    rank: int
    world_size: int
    attempt: int


def main(arguments: list[str]) -> NoReturn:
    """Runs this rank's share of a job and ends the process: code 0, or that of the error."""
    job_path, report_path = Path(arguments[0]), Path(arguments[1])
    take_rank_from_slurm()
    rank = int(os.environ["RANK"])
    run = Run(
        report_path=report_path,
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
        attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )
    threading.Thread(target=_leave_with_parent, daemon=True, name="arachne-parent").start()
    try:
        _run(job_path, run)
    except Exception as error:
        _fail(run, error)
    # A normal exit would take down torch's threads in an order that now and then aborts.
    os._exit(0)


def _run(job_path: Path, run: Run) -> None:
    """Reads the job and runs it as what it says it is."""
    if run.attempt and (error := hopeless(run.report_path, run.attempt)) is not None:
        raise error
    value = read_json(job_path)
    kind = value.get("format") if isinstance(value, dict) else None
    runners = {
        JOB_FORMAT: _replay,
        MEASURE_FORMAT: _measure,
        PIPELINE_JOB_FORMAT: _pipeline,
        DEVICE_FORMAT: _measure_device,
    }
    if kind not in runners:
        known = " or ".join(runners)
        raise InputError(f"unknown job format {kind!r}", where=str(job_path), hint=known)
    report = runners[kind](value, run)
    if run.rank == 0:
        partial = run.report_path.with_name(run.report_path.name + ".partial")
        partial.write_text(json.dumps(report), encoding="utf-8")
        partial.replace(run.report_path)


def _replay(value: object, run: Run) -> dict[str, Any] | None:
    from arachne_opt.executor.trainer import CascadeTrainer

    job = job_from_json(value)
    _set_up(job.device, job.threads_per_rank, job.iteration_timeout_s)
    trainer = CascadeTrainer(job, watchdog=_watchdog(run), resume=run.attempt > 0)
    if run.rank != 0:
        trainer.run()
        _part()
        return None
    narrator = Narrator(trainer, StepLog(step_log_path(run.report_path)), _progress)
    if run.attempt:
        narrator.tell_restart(run.attempt)
    report = trainer.run(narrator.tell)
    _part()
    assert report is not None  # rank 0 has it
    return report_to_json(narrator.whole(report))


def _measure(value: object, run: Run) -> dict[str, Any] | None:
    from arachne_opt.executor.measure_worker import TIMEOUT_S, Meter
    from arachne_opt.records import Measurement

    job = measure_job_from_json(value)
    total = len(job.work())
    _set_up(job.device, job.threads_per_rank, TIMEOUT_S)

    def on_done(number: int, row: Measurement) -> None:
        shape = f"{row.batch}x{row.frames}x{row.height}x{row.width}"
        text = f"{row.task} {shape} at degree {row.degree}: {format_seconds(row.duration_us)}"
        if run.rank == 0:
            _progress(number, total, text)

    rows = Meter(job, _watchdog(run)).run(on_done)
    _part()
    return measurements_to_json(rows)


def _pipeline(value: object, run: Run) -> dict[str, Any] | None:
    from arachne_opt.executor.pipeline.worker import run_pipeline

    report = run_pipeline(
        value, rank=run.rank, attempt=run.attempt, watchdog=_watchdog(run), say=_progress
    )
    _part()
    return report


def _measure_device(value: object, run: Run) -> dict[str, Any] | None:
    from arachne_opt.executor.device_worker import TIMEOUT_S, DeviceMeter

    job = device_job_from_json(value)
    _set_up(job.device, job.threads_per_rank, TIMEOUT_S)

    def on_done(number: int, label: str, median_us: int) -> None:
        if run.rank == 0:
            _progress(number, job.count, f"{label}: {format_seconds(median_us)}")

    rows = DeviceMeter(job, _watchdog(run)).run(on_done)
    _part()
    return measurements_to_json(rows)


def _set_up(device: str, threads: int, timeout_s: float) -> None:
    import torch

    from arachne_opt.executor.distributed import pick_device, start_group

    torch.set_num_threads(threads_for(int(os.environ["LOCAL_WORLD_SIZE"]), threads))
    start_group(pick_device(device), timeout_s)


def _part() -> None:
    """Waits for the other ranks: who leaves early would look like a lost peer to the rest.

    All work is done and reported by now, so who is gone already is no loss.
    """
    from arachne_opt.executor.distributed import meet

    with suppress(RuntimeError):
        meet()


def _watchdog(run: Run) -> Watchdog:
    def expire(error: RunError) -> None:
        faulthandler.dump_traceback(all_threads=True)
        _keep_flight_record(run)
        write_failure(run.report_path, run.rank, error, run.attempt)
        os._exit(error.exit_code)

    board = PositionBoard(run.report_path, run.world_size, run.attempt)
    return Watchdog(run.rank, expire, board)


def _keep_flight_record(run: Run) -> None:
    """Writes NCCL's last collectives beside the report, where there is NCCL."""
    from arachne_opt.executor.distributed import flight_record

    record = flight_record()
    if record is not None:
        path = run.report_path.with_name(f"{run.report_path.name}.nccl.{run.rank}")
        with suppress(OSError):
            path.write_bytes(record)


def _progress(done: int, total: int, text: str, note: str = "") -> None:
    line = json.dumps({"done": done, "total": total, "text": text, "note": note})
    sys.stdout.write(f"{PROGRESS_MARK}{line}\n")
    sys.stdout.flush()


def _fail(run: Run, error: Exception) -> NoReturn:
    with suppress(OSError):  # a full disk; the words on stderr are left
        write_failure(run.report_path, run.rank, error, run.attempt)
    traceback.print_exception(error)
    sys.stderr.flush()
    # A normal exit would wait for collectives that no peer will ever join.
    os._exit(error.exit_code if isinstance(error, ArachneError) else 1)


def _leave_with_parent() -> None:
    """Ends this rank when torchrun is gone, so that none outlives an interrupted run."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
