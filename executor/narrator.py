"""What rank 0 says about a training: a line per step, stragglers, failures; knows no torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from arachne_opt.executor.report import REPORTED_STEPS, IterationReport, ReplayReport
from arachne_opt.executor.step_log import StepLog
from arachne_opt.executor.stragglers import find_straggler
from arachne_opt.units import format_seconds

if TYPE_CHECKING:
    from arachne_opt.executor.trainer import CascadeTrainer

# Done, total, text, note.
Say = Callable[[int, int, str, str], None]

# The report keeps so many; a machine that is slow all week is one fact.
_MOST_STRAGGLERS = 20
_SHOWN_CLIPS = 10


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
        self._before = log.begin(self._first)[-REPORTED_STEPS:]
        self._stragglers: list[str] = []
        self._left_out: set[str] = set()
        self._told = 0

    def tell_restart(self, attempt: int) -> None:
        """Says that all ranks were started again."""
        total = self._trainer.sampler.total_steps
        note = f"restart {attempt}: a rank failed; going on after step {self._first}"
        self._say(self._first, total, "restarted", note)

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
            iterations=(self._before + report.iterations)[-REPORTED_STEPS:],
            notes=(*report.notes, *self._summary()),
            stragglers=tuple(self._stragglers[:_MOST_STRAGGLERS]),
        )

    def _summary(self) -> list[str]:
        """One line about the clips that were left out, if any were."""
        if not self._left_out:
            return []
        named = ", ".join(sorted(self._left_out)[:_SHOWN_CLIPS])
        return [f"{len(self._left_out)} clips could not be used and were left out: {named}"]

    def _notes(self, report: IterationReport) -> list[str]:
        notes = []
        # The first step of a process warms up; it says nothing about the machine.
        if report.step > self._first and (found := find_straggler(report)) is not None:
            notes.append(str(found))
            self._stragglers.append(str(found))
        for clip, why in report.left_out:
            notes.append(f"clip {clip} is left out of step {report.step}: {why}")
            self._left_out.add(clip)
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
