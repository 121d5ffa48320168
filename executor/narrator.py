"""What rank 0 says about a training: a line per step, stragglers, failures; knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from arachne_opt.executor.report import IterationReport, ReplayReport
from arachne_opt.executor.step_log import StepLog
from arachne_opt.executor.stragglers import find_straggler
from arachne_opt.units import format_seconds

if TYPE_CHECKING:
    from arachne_opt.executor.trainer import CascadeTrainer

# Done, total, text, note.
Say = Callable[[int, int, str, str], None]

# The report keeps so many; a machine that is slow all week is one fact.
_MOST_STRAGGLERS = 20


class Narrator:
    """Follows a trainer on rank 0.

    Args:
        trainer: just made, at the step where it begins.
        log: keeps what was measured.
        say: takes a line of progress.
    """

    def __init__(self, trainer: CascadeTrainer, log: StepLog, say: Say) -> None:
        self._trainer, self._log, self._say = trainer, log, say
        self._first = trainer.steps.start
        self._before = log.begin(self._first)
        self._stragglers: list[str] = []
        self._told = 0

    def tell(self, report: IterationReport) -> None:
        """Keeps a step and says how it went."""
        self._log.append(report)
        total = self._trainer.sampler.total_steps
        note = "; ".join(self._notes(report))
        self._say(report.step + 1, total, step_line(report, self._trainer.job.world_size), note)

    def whole(self, report: ReplayReport) -> ReplayReport:
        """The report with the steps before a restart and the stragglers."""
        return replace(
            report,
            iterations=self._before + report.iterations,
            stragglers=tuple(self._stragglers[:_MOST_STRAGGLERS]),
        )

    def _notes(self, report: IterationReport) -> list[str]:
        notes = []
        # The first step of a process warms up; it says nothing about the machine.
        if report.step > self._first and (found := find_straggler(report)) is not None:
            notes.append(str(found))
            self._stragglers.append(str(found))
        checkpoints = self._trainer.checkpoints
        failures = checkpoints.failures if checkpoints is not None else []
        notes += failures[self._told :]
        self._told = len(failures)
        return notes


def step_line(report: IterationReport, world_size: int) -> str:
    """A step in one line."""
    took, planned = format_seconds(report.measured_us), format_seconds(report.planned_us)
    speed = report.clips / max(1, report.step_us) * 1e6
    idle = 100 * report.idle_share(world_size)
    return (
        f"{report.name}: loss {report.loss:.6g}, {took} (planned {planned}), "
        f"{speed:.1f} clips/s, idle {idle:.0f} %"
    )
