"""Starts the ranks of a job, forked or with torchrun, and brings back what they report.

Knows no torch. Ranks on CPUs are forked from one process, which spares each its import of torch.

Public: ``compose(job_path, world_size, report_path)`` gives the command, for one machine or many;
``run_local(job, world_size, on_progress=...)`` runs a replay job on this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import arachne_opt
from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.failures import failure_of
from arachne_opt.executor.job import ReplayJob, check_world_size
from arachne_opt.executor.job_json import job_to_json, read_json
from arachne_opt.executor.pixel_files import check_files
from arachne_opt.executor.report import IterationReport, ReplayReport, report_from_json
from arachne_opt.executor.step_log import StepFollower, step_log_path

# Rank 0 writes lines that begin like this on stdout; all other output is talk of libraries.
PROGRESS_MARK = "arachne-progress "

_STOP_PATIENCE_S = 10.0

# Where the drivers of GPUs show themselves.
_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is: ``done`` of ``total`` steps or measurements, and what the last one gave.

    ``note`` is what the user should see even where no progress is shown, such as a straggler.
    """

    done: int
    total: int
    text: str
    note: str = ""


ProgressCallback = Callable[[Progress], None]
StepCallback = Callable[[IterationReport], None]


def compose(
    job_path: Path,
    world_size: int,
    report_path: Path,
    *,
    nodes: int = 1,
    rendezvous: str = "",
    max_restarts: int = 0,
) -> list[str]:
    """The torchrun command that runs a job file on ``world_size`` ranks.

    Args:
        job_path: job file that every rank can read.
        world_size: number of ranks over all machines.
        report_path: where rank 0 writes the report.
        nodes: number of machines; the command is started once on each.
        rendezvous: ``host:port`` of the first machine, needed for more than one.
        max_restarts: so often all ranks are started again after one failed; the environment then
            needs ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``.

    Raises:
        InputError: ranks that do not spread evenly, or no rendezvous for several machines.
    """
    if world_size < 1 or nodes < 1 or world_size % nodes:
        raise InputError(f"{world_size} ranks do not spread evenly over {nodes} machines")
    if nodes > 1 and not rendezvous:
        raise InputError("several machines need a meeting point", hint="--rendezvous HOST:PORT")
    command = [sys.executable, "-m", "torch.distributed.run"]
    command.append(f"--max-restarts={max_restarts}")
    command.append(f"--nproc-per-node={world_size // nodes}")
    if nodes == 1:
        command += ["--standalone", "--local-addr=127.0.0.1"]
    else:
        command += [f"--nnodes={nodes}", "--rdzv-backend=c10d", f"--rdzv-endpoint={rendezvous}"]
    return [*command, "-m", "arachne_opt.executor.worker", str(job_path), str(report_path)]


def compose_forked(job_path: Path, world_size: int, report_path: Path) -> list[str]:
    """The command that runs a job file on ranks of this machine which share one import of torch.

    For rehearsals: more ranks than cores. A failed rank is not started again.
    """
    module = "arachne_opt.executor.fork_ranks"
    return [sys.executable, "-m", module, str(world_size), str(job_path), str(report_path)]


def run_local(
    job: ReplayJob,
    world_size: int,
    *,
    on_progress: ProgressCallback | None = None,
    on_step: StepCallback | None = None,
    folder: Path | None = None,
    max_restarts: int = 0,
    forked: bool | None = None,
) -> ReplayReport:
    """The report of a job run by ``world_size`` processes on this machine.

    Args:
        job: what to run.
        world_size: number of processes, the number of devices that the plans are for.
        on_progress: called after every step.
        on_step: called after every step with what it measured.
        folder: where job, report and errors are kept; a temporary folder where None.
        max_restarts: so often the ranks are started again when one fails; they go on from the
            newest checkpoint.
        forked: the ranks share one import of torch; unless given, where they can.

    Raises:
        InputError: a plan for another world size, or a pixel file that is missing or unreadable.
        RunError: a rank failed; names the rank and its last words.
    """
    check_world_size(job, world_size)
    for iteration in job.iterations:
        check_files(iteration.batches.micro_batches, job.model.config())
    if job.save_parameters and not Path(job.save_parameters).resolve().parent.is_dir():
        raise InputError("the folder for the parameters does not exist", where=job.save_parameters)
    value = launch(
        job_to_json(job),
        world_size,
        on_progress=on_progress,
        on_step=on_step,
        folder=folder,
        max_restarts=max_restarts,
        forked=job.model.emulated or forks(job.device, max_restarts) if forked is None else forked,
    )
    return report_from_json(value)


def forks(device: str, max_restarts: int = 0) -> bool:
    """Whether ranks can be forked: without GPUs, and where none is started again.

    Args:
        device: that the job asks for, ``auto``, ``cpu`` or ``cuda``.
        max_restarts: only torchrun starts ranks again.
    """
    if sys.platform != "linux" or max_restarts:
        return False
    return device == "cpu" or (device == "auto" and not any(map(os.path.exists, _GPU_FILES)))


def launch(
    job: dict[str, Any],
    world_size: int,
    *,
    on_progress: ProgressCallback | None = None,
    on_step: StepCallback | None = None,
    folder: Path | None = None,
    max_restarts: int = 0,
    forked: bool = False,
) -> object:
    """The JSON value that the ranks of a job (given as JSON) report."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="arachne-") as made:
            return launch(
                job,
                world_size,
                on_progress=on_progress,
                on_step=on_step,
                folder=Path(made),
                max_restarts=max_restarts,
                forked=forked,
            )
    job_path, report_path = _lay_out(folder, job)
    if forked:
        command = compose_forked(job_path, world_size, report_path)
    else:
        command = compose(job_path, world_size, report_path, max_restarts=max_restarts)
    follower = StepFollower(step_log_path(report_path))

    def on_line(progress: Progress) -> None:
        if on_progress is not None:
            on_progress(progress)
        if on_step is not None:
            for report in follower.new():
                on_step(report)

    with (folder / "stderr.txt").open("w+", encoding="utf-8", errors="replace") as stderr:
        code = _run(command, _environment(world_size, job), stderr, on_line)
        stderr.seek(0)
        last_words = stderr.read()
    if code != 0:
        raise failure_of(report_path, last_words, code)
    if not report_path.exists():
        raise RunError("all ranks ended, but there is no report", where=str(report_path))
    return read_json(report_path)


def _lay_out(folder: Path, job: dict[str, Any]) -> tuple[Path, Path]:
    """Writes the job and clears what another run has left; the paths of job and report."""
    job_path, report_path = folder / "job.json", folder / "report.json"
    try:
        job_path.write_text(json.dumps(job), encoding="utf-8")
        for old in (report_path, *folder.glob(f"{report_path.name}.*")):
            old.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot write the job: {error}", where=str(folder)) from error
    return job_path, report_path


def threads_for(world_size: int, wanted: int) -> int:
    """Threads of one rank on this machine: ``wanted``, or an equal share of the cores."""
    return wanted or max(1, (os.cpu_count() or 1) // world_size)


def _run(
    command: list[str],
    environment: dict[str, str],
    stderr: IO[str],
    on_progress: ProgressCallback,
) -> int:
    """The exit code of the command; stops all its ranks when it is interrupted."""
    # Its own session: Ctrl-C reaches this process alone, which then stops the ranks in order.
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None  # asked for with PIPE
    try:
        for line in process.stdout:
            if line.startswith(PROGRESS_MARK):
                on_progress(Progress(**json.loads(line.removeprefix(PROGRESS_MARK))))
        return process.wait()
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """Ends torchrun, which ends its ranks; ranks also leave by themselves when it is gone."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is not None:
        return
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_PATIENCE_S)
    if process.poll() is None:
        process.kill()
        process.wait()


def _environment(world_size: int, job: dict[str, Any]) -> dict[str, str]:
    environment = dict(os.environ)
    root = str(Path(arachne_opt.__file__).resolve().parent.parent)
    if "site-packages" not in root:
        paths = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    threads = threads_for(world_size, job["threads_per_rank"])
    environment["OMP_NUM_THREADS"] = str(threads)
    # Without it a restarted rank would read what the ranks before it left in the store.
    environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    # NCCL keeps its last collectives in memory, for the watchdog to write down.
    environment.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")
    if sys.platform == "linux":
        # All ranks are here: do not depend on how the machine's name resolves.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment
