"""The steps of a run in a file that grows, so that nothing measured is lost; knows no torch.

Rank 0 writes a line per step beside the report. The process that started the ranks reads along;
after a restart the ranks find there what was measured before.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from arachne_opt.executor.report import (
    IterationReport,
    iteration_report_from_json,
    iteration_report_to_json,
)

_log = logging.getLogger(__name__)


def step_log_path(report_path: Path) -> Path:
    """The file of a run, beside its report."""
    return report_path.with_name(f"{report_path.name}.steps")


class StepLog:
    """Writes steps; a disk that is full costs the log, never the training."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def begin(self, first_step: int) -> tuple[IterationReport, ...]:
        """The steps before ``first_step``; later ones are dropped: they are run again."""
        found = {report.step: report for report in read_steps(self._path)}
        kept = tuple(found[step] for step in sorted(found) if step < first_step)
        # A new file under the old name: who reads along sees that it begins anew.
        partial = self._path.with_name(f"{self._path.name}.partial")
        try:
            partial.write_text("".join(map(_line, kept)), encoding="utf-8")
            partial.replace(self._path)
        except OSError as error:
            self._tell(error)
        return kept

    def append(self, report: IterationReport) -> None:
        """Adds a step."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(report))
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if not self._failed:
            _log.warning("cannot write the steps to %s: %s", self._path, error)
        self._failed = True


class StepFollower:
    """Reads a log while it grows; each step is given once, however often it is run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0
        self._file_id, self._offset = -1, 0

    def new(self) -> Iterator[IterationReport]:
        """The steps that came since the last call."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            if os.fstat(file.fileno()).st_ino != self._file_id:
                self._file_id, self._offset = os.fstat(file.fileno()).st_ino, 0
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):  # still being written
                    break
                self._offset += len(line)
                report = _report(line)
                if report is not None and report.step >= self._next:
                    self._next = report.step + 1
                    yield report


def read_steps(path: Path) -> Iterator[IterationReport]:
    """All steps of a log; none where there is no file."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            report = _report(line)
            if report is not None:
                yield report


def _report(line: bytes) -> IterationReport | None:
    """The step of a line, None where a full disk has cut it."""
    with suppress(ValueError, KeyError, TypeError):
        return iteration_report_from_json(json.loads(line))
    return None


def _line(report: IterationReport) -> str:
    return json.dumps(iteration_report_to_json(report)) + "\n"
