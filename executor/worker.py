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
from pathlib import Path
from typing import Any, NoReturn

from arachne_opt.errors import ArachneError, InputError, RunError
from arachne_opt.executor.failures import write_failure
from arachne_opt.executor.job_json import JOB_FORMAT, job_from_json, read_json
from arachne_opt.executor.launch import PROGRESS_MARK, threads_for
from arachne_opt.executor.measure import (
    MEASURE_FORMAT,
    measure_job_from_json,
    measurements_to_json,
)
from arachne_opt.executor.report import report_to_json
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.units import format_seconds


def main(arguments: list[str]) -> NoReturn:
    """Runs this rank's share of a job and ends the process: code 0, or that of the error."""
    job_path, report_path = Path(arguments[0]), Path(arguments[1])
    rank = int(os.environ["RANK"])
    threading.Thread(target=_leave_with_parent, daemon=True, name="arachne-parent").start()
    try:
        _run(job_path, report_path, rank)
    except Exception as error:
        _fail(report_path, rank, error)
    # A normal exit would take down torch's threads in an order that now and then aborts.
    os._exit(0)


def _run(job_path: Path, report_path: Path, rank: int) -> None:
    """Reads the job and runs it as what it says it is."""
    value = read_json(job_path)
    kind = value.get("format") if isinstance(value, dict) else None
    runners = {JOB_FORMAT: _replay, MEASURE_FORMAT: _measure}
    if kind not in runners:
        known = " or ".join(runners)
        raise InputError(f"unknown job format {kind!r}", where=str(job_path), hint=known)
    report = runners[kind](value, report_path, rank)
    if rank == 0:
        partial = report_path.with_name(report_path.name + ".partial")
        partial.write_text(json.dumps(report), encoding="utf-8")
        partial.replace(report_path)


def _replay(value: object, report_path: Path, rank: int) -> dict[str, Any] | None:
    from arachne_opt.executor.cascade_runner import RankTrace
    from arachne_opt.executor.trainer import CascadeTrainer

    job = job_from_json(value)
    _set_up(job.device, job.threads_per_rank, job.iteration_timeout_s)

    def on_step(step: int, trace: RankTrace) -> None:
        iteration = job.iteration_of(step)
        took = format_seconds(trace.makespan_us)
        planned = format_seconds(iteration.plan.makespan_us)
        text = f"{iteration.name}: loss {trace.loss:.6g}, {took} (planned {planned})"
        _progress(rank, step + 1, job.steps, text)

    trainer = CascadeTrainer(job, watchdog=_watchdog(report_path, rank))
    report = trainer.run(on_step)
    _part()
    return report_to_json(report) if report is not None else None


def _measure(value: object, report_path: Path, rank: int) -> dict[str, Any] | None:
    from arachne_opt.executor.measure_worker import TIMEOUT_S, Meter
    from arachne_opt.records import Measurement

    job = measure_job_from_json(value)
    total = len(job.work())
    _set_up(job.device, job.threads_per_rank, TIMEOUT_S)

    def on_done(number: int, row: Measurement) -> None:
        shape = f"{row.batch}x{row.frames}x{row.height}x{row.width}"
        text = f"{row.task} {shape} at degree {row.degree}: {format_seconds(row.duration_us)}"
        _progress(rank, number, total, text)

    rows = Meter(job, _watchdog(report_path, rank)).run(on_done)
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


def _watchdog(report_path: Path, rank: int) -> Watchdog:
    def expire(error: RunError) -> None:
        faulthandler.dump_traceback(all_threads=True)
        write_failure(report_path, rank, error)
        os._exit(error.exit_code)

    return Watchdog(rank, expire)


def _progress(rank: int, done: int, total: int, text: str) -> None:
    if rank == 0:
        line = json.dumps({"done": done, "total": total, "text": text})
        sys.stdout.write(f"{PROGRESS_MARK}{line}\n")
        sys.stdout.flush()


def _fail(report_path: Path, rank: int, error: Exception) -> NoReturn:
    with suppress(OSError):  # a full disk; the words on stderr are left
        write_failure(report_path, rank, error)
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
