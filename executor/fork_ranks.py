"""Starts many ranks on this machine by forking one process that has torch loaded.

``python -m arachne_opt.executor.fork_ranks RANKS JOB REPORT``. torchrun imports torch once per
rank, which takes minutes and gigabytes for the 64 ranks of a rehearsal on a few cores. Here they
share one import. What it says of ranks that failed has torchrun's form.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from arachne_opt.executor import worker


def main(arguments: list[str]) -> NoReturn:
    """Forks the ranks, waits for them, and ends with 0 or, when one failed, with 1."""
    world_size, paths = int(arguments[0]), arguments[1:]
    # What all ranks would import; no thread may run before the fork.
    import arachne_opt.executor.trainer  # noqa: F401

    gc.freeze()
    port = _free_port()
    ranks = {_start(rank, world_size, port, paths): rank for rank in range(world_size)}

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        _end(ranks)
        os._exit(1)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    os._exit(_wait(ranks))


def _start(rank: int, world_size: int, port: int, paths: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        _be_rank(rank, world_size, port, paths)
    return pid


def _be_rank(rank: int, world_size: int, port: int, paths: list[str]) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    worker.main(paths)


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
    for pid in ranks:
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main(sys.argv[1:])
