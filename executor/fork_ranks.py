"""Starts many ranks on this machine by forking one process that has torch loaded.

``python -m arachne_opt.executor.fork_ranks RANKS JOB REPORT``. torchrun imports torch once per
rank, which takes minutes and gigabytes for the 64 ranks of a rehearsal on a few cores, and seconds
for the two of a small run. Here they share one import. What it says of ranks that failed has
torchrun's form.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from arachne_opt.errors import ArachneError
from arachne_opt.executor import worker
from arachne_opt.executor.device_job import DEVICE_FORMAT
from arachne_opt.executor.job_json import model_from_json, read_json
from arachne_opt.executor.pipeline.job import PIPELINE_JOB_FORMAT

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stub

# A rank that does not hear a polite signal in this time, such as a stopped one, is killed.
_PATIENCE_S = 5.0


def main(arguments: list[str]) -> NoReturn:
    """Forks the ranks, waits for them, and ends with 0 or, when one failed, with 1."""
    world_size, paths = int(arguments[0]), arguments[1:]
    # No thread may run before the fork.
    with suppress(ArachneError):  # the ranks say what is wrong with the job
        _import_for(Path(paths[0]))
    gc.freeze()
    # Open from here to the end: a free port that is looked up may be taken before it is used.
    door = socket.create_server(("127.0.0.1", 0), backlog=world_size)
    ranks = {_start(rank, world_size, door, paths): rank for rank in range(world_size)}

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        _end(ranks)
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    threading.Thread(target=_stop_with_parent, daemon=True, name="arachne-parent").start()
    _store = _serve(door)  # is there as long as this process
    os._exit(_wait(ranks))


def _import_for(job_path: Path) -> None:
    """Imports what all ranks of a job would."""
    job = read_json(job_path)
    kind = job.get("format") if isinstance(job, dict) else None
    if kind == PIPELINE_JOB_FORMAT:
        import arachne_opt.executor.pipeline.worker

        return
    import arachne_opt.executor.trainer  # noqa: F401

    if isinstance(job, dict) and "model" in job and kind != DEVICE_FORMAT:
        from arachne_opt.executor.adapters import import_code

        import_code(model_from_json(job["model"], str(job_path)))


def _start(rank: int, world_size: int, door: socket.socket, paths: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        _be_rank(rank, world_size, door, paths)
    return pid


def _serve(door: socket.socket) -> TCPStore:
    """The store in which the ranks meet; ranks that knock before it is there wait at the door."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stub

    host, port = door.getsockname()
    return TCPStore(
        host, port, is_master=True, wait_for_workers=False, master_listen_fd=door.detach()
    )


def _be_rank(rank: int, world_size: int, door: socket.socket, paths: list[str]) -> NoReturn:
    host, port = door.getsockname()
    door.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        # As torchrun has it: the first rank does not begin a store of its own.
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    worker.main(paths)


def _stop_with_parent() -> None:
    """Stops the ranks when the process that started the run is gone, even if it was killed."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


def _wait(ranks: dict[int, int]) -> int:
    """0 when all ranks end well; else the others are stopped and the failure is told."""
    left = dict(ranks)
    while left:
        pid, status = os.wait()
        rank = left.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            sys.stderr.write(f"Failures:\n  rank      : {rank} (local_rank: {rank})\n")
            sys.stderr.write(f"  exitcode  : {code} (pid: {pid})\n")
            sys.stderr.flush()
            _end(left)
            return 1
    return 0


def _end(ranks: dict[int, int]) -> None:
    for pid in ranks:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    left, deadline = set(ranks), time.monotonic() + _PATIENCE_S
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if not _is_gone(pid, os.WNOHANG)}
        time.sleep(0.02)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _is_gone(pid)


def _is_gone(pid: int, options: int = 0) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, options)[0] == pid
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
