"""Where each rank of a stuck run stands; knows no torch.

The rank that notices first leaves a mark beside the report. The watchdogs of the others see it
and write down what they are at, so that the error names them all, and those that are silent.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class PositionBoard:
    """Files of one attempt of a run, in a folder that all ranks share.

    Args:
        report_path: of the run.
        world_size: number of ranks.
        attempt: number of restarts so far.
    """

    def __init__(self, report_path: Path, world_size: int, attempt: int = 0) -> None:
        self._base = report_path.with_name(f"{report_path.name}.stuck.{attempt}")
        self._world_size = world_size

    def ask(self) -> None:
        """Asks all ranks for their positions."""
        with suppress(OSError):
            self._base.touch()

    def asked(self) -> bool:
        """Whether a rank asked."""
        return self._base.exists()

    def post(self, rank: int, text: str) -> None:
        """Writes a rank's position."""
        with suppress(OSError):  # it is for people; the error itself goes another way
            self._path(rank).write_text(text, encoding="utf-8")

    def complete(self) -> bool:
        """Whether all ranks have answered."""
        return all(self._path(rank).exists() for rank in range(self._world_size))

    def read(self) -> str:
        """The positions of all ranks on one line."""
        return "; ".join(f"rank {rank}: {self._read(rank)}" for rank in range(self._world_size))

    def _read(self, rank: int) -> str:
        try:
            return self._path(rank).read_text(encoding="utf-8")
        except OSError:
            return "no answer"

    def _path(self, rank: int) -> Path:
        return self._base.with_name(f"{self._base.name}.{rank}")
