"""Finds the processes of a run by the job file in their command line."""

from collections.abc import Iterator
from pathlib import Path


def ranks_of(folder: Path) -> dict[int | str, int]:
    """Processes that torchrun started, by rank; torchrun itself among them."""
    found: dict[int | str, int] = {}
    for process in _processes(folder):
        try:
            words = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [w.removeprefix(b"RANK=") for w in words if w.startswith(b"RANK=")]
        found[int(rank[0]) if rank else "torchrun"] = int(process.name)
    return found


def forked_ranks_of(folder: Path) -> list[int]:
    """Forked processes in the order of their ranks: they share a command line, not a parent."""
    for process in _processes(folder):
        try:
            pid = process.name
            children = (process / "task" / pid / "children").read_text().split()
        except OSError:
            continue
        if children:
            return [int(child) for child in children]
    return []


def _processes(folder: Path) -> Iterator[Path]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder / "job.json").encode() in command:
            yield process
