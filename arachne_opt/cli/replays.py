"""Runs replay jobs on this machine for a person who watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.progress import ProgressLine
from arachne_opt.planning.service import Answer
from arachne_opt.workload import Iteration

if TYPE_CHECKING:
    from arachne_opt.executor.job import ReplayIteration, ReplayJob
    from arachne_opt.executor.report import IterationReport, ReplayReport


def replay_iterations(
    iterations: Sequence[Iteration], answers: list[Answer]
) -> tuple[ReplayIteration, ...]:
    """Each iteration with its plan."""
    from arachne_opt.executor.job import ReplayIteration

    return tuple(
        ReplayIteration(
            batches=iteration,
            problem=answer.problem,
            plan=answer.plan,
            plan_id=answer.record.id,
        )
        for iteration, answer in zip(iterations, answers, strict=True)
    )


def replay(
    job: ReplayJob,
    *,
    on_step: Callable[[IterationReport], None] | None = None,
    max_restarts: int = 0,
) -> ReplayReport:
    """Runs a job on this machine with a progress line."""
    from arachne_opt.executor.launch import Progress, run_local

    line = ProgressLine()

    def show(progress: Progress) -> None:
        if progress.note:
            line.clear()
            click.echo(progress.note, err=True)
        line.show(f"step {progress.done}/{progress.total}  {progress.text}")

    try:
        return run_local(
            job, job.world_size, on_progress=show, on_step=on_step, max_restarts=max_restarts
        )
    finally:
        line.clear()
