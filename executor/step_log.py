"""The steps of a run in a file that grows, so that nothing measured is lost; knows no torch.

Rank 0 writes a line per step beside the report. The process that started the ranks reads along;
after a restart the ranks find there what was measured before.
"""

from __future__ import annotations

import json
import logging
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
        self._write("w", "".join(_line(report) for report in kept))
        return kept

    def append(self, report: IterationReport) -> None:
        """Adds a step."""
        self._write("a", _line(report))

    def _write(self, mode: str, text: str) -> None:
        try:
            with self._path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            if not self._failed:
                _log.warning("cannot write the steps to %s: %s", self._path, error)
            self._failed = True


class StepFollower:
    """Reads a log while it grows; each step is given once, however often it is run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = 0

    def new(self) -> Iterator[IterationReport]:
        """The steps that came since the last call."""
        for report in read_steps(self._path):
            if report.step >= self._next:
                self._next = report.step + 1
                yield report


def read_steps(path: Path) -> Iterator[IterationReport]:
    """All whole lines of a log; none where there is no file."""
    with suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                with suppress(ValueError, KeyError, TypeError):  # cut by a full disk
                    yield iteration_report_from_json(json.loads(line))


def _line(report: IterationReport) -> str:
    return json.dumps(iteration_report_to_json(report)) + "\n"
