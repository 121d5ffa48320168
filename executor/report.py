"""What a replay measured, as JSON (``arachne.replay-report/1``) and as database records.

All times are microseconds since the start of their iteration, on the clock of the rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.records import Measurement, RunRecord
from arachne_opt.units import PPM
from arachne_opt.workload import Shape

REPORT_FORMAT = "arachne.replay-report/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpan:
    """When one rank of a group worked on a task."""

    rank: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task, planned and measured.

    Args:
        penalty_ppm: planned slow-down of the group; a measurement without it is the task alone.
        handoff_bytes: what was sent to this task's ranks from the task before.
        ranks: measured spans, one per rank of the group.
    """

    micro_batch: str
    task: str
    shape: Shape
    clips: int
    text_tokens: int
    device_type: str
    penalty_ppm: int
    planned_start_us: int
    planned_end_us: int
    ranks: tuple[RankSpan, ...]
    handoff_bytes: int = 0

    @property
    def devices(self) -> tuple[int, ...]:
        """The group."""
        return tuple(span.rank for span in self.ranks)

    @property
    def start_us(self) -> int:
        """When the last rank was there: from then on the whole group worked."""
        return max(span.start_us for span in self.ranks)

    @property
    def end_us(self) -> int:
        """When the last rank was done."""
        return max(span.end_us for span in self.ranks)

    @property
    def duration_us(self) -> int:
        """Measured duration, waiting for the group not counted; at least 1."""
        return max(1, self.end_us - self.start_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationReport:
    """One optimizer step.

    Args:
        measured_us: from the common start to the end of the last task.
        sync_us: gradient synchronisation of the slowest rank.
        optimizer_us: optimizer step of the slowest rank.
        overhead_us: mean time per task that the slowest rank spent on neither a task nor waiting.
    """

    name: str
    step: int
    loss: float
    planned_us: int
    measured_us: int
    sync_us: int
    optimizer_us: int
    overhead_us: int
    tasks: tuple[TaskReport, ...]

    @property
    def handoff_bytes(self) -> int:
        """Bytes that all hand-offs sent from rank to rank."""
        return sum(task.handoff_bytes for task in self.tasks)

    @property
    def fidelity(self) -> float:
        """Measured over planned makespan."""
        return self.measured_us / self.planned_us


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The whole run."""

    model: str
    world_size: int
    device: str
    threads_per_rank: int
    weight_rule: str
    iterations: tuple[IterationReport, ...]


def report_to_json(report: ReplayReport) -> dict[str, Any]:
    """JSON values that ``report_from_json`` reads back to an equal report."""
    value = asdict(report)
    for row, iteration in zip(value["iterations"], report.iterations, strict=True):
        row["handoff_bytes"] = iteration.handoff_bytes
        for line, task in zip(row["tasks"], iteration.tasks, strict=True):
            line["start_us"], line["end_us"] = task.start_us, task.end_us
    return {"format": REPORT_FORMAT, **value}


def report_from_json(value: object) -> ReplayReport:
    """Reads a report back.

    Raises:
        InputError: another format, or a field is missing.
    """
    if not isinstance(value, dict) or value.get("format") != REPORT_FORMAT:
        raise InputError(f"not a report of format {REPORT_FORMAT!r}")
    try:
        iterations = tuple(_iteration(row) for row in value["iterations"])
        rest = {k: v for k, v in value.items() if k not in ("format", "iterations")}
        return ReplayReport(iterations=iterations, **rest)
    except (KeyError, TypeError) as error:
        raise InputError(f"malformed report: {error}") from error


def run_records(report: ReplayReport, plan_ids: Sequence[str]) -> tuple[RunRecord, ...]:
    """One record per step; ``plan_ids`` names the stored plan of each of the job's iterations."""
    whole = {k: v for k, v in report_to_json(report).items() if k != "iterations"}
    rows = report_to_json(report)["iterations"]
    return tuple(
        RunRecord(
            plan_id=plan_ids[iteration.step % len(plan_ids)],
            status="done",
            world_size=report.world_size,
            planned_us=iteration.planned_us,
            measured_us=iteration.measured_us,
            report={**whole, "iterations": [row]},
        )
        for iteration, row in zip(report.iterations, rows, strict=True)
    )


def measurements(report: ReplayReport, *, skip_steps: int = 0) -> tuple[Measurement, ...]:
    """Samples for a cost model; ``skip_steps`` leaves out steps that warmed up.

    The duration is freed from the planned penalty of the group's topology.
    """
    return tuple(
        Measurement(
            model=report.model,
            task=task.task,
            device_type=task.device_type,
            degree=len(task.ranks),
            batch=task.clips,
            frames=task.shape.frames,
            height=task.shape.height,
            width=task.shape.width,
            text_tokens=task.text_tokens,
            duration_us=max(1, task.duration_us * PPM // task.penalty_ppm),
            memory_bytes=0,
            source="replay",
        )
        for iteration in report.iterations
        if iteration.step >= skip_steps
        for task in iteration.tasks
    )


def _iteration(row: dict[str, Any]) -> IterationReport:
    derived = ("handoff_bytes",)
    tasks = tuple(_task(line) for line in row["tasks"])
    rest = {k: v for k, v in row.items() if k not in ("tasks", *derived)}
    return IterationReport(tasks=tasks, **rest)


def _task(line: dict[str, Any]) -> TaskReport:
    derived = ("start_us", "end_us", "ranks", "shape")
    rest = {k: v for k, v in line.items() if k not in derived}
    ranks = tuple(RankSpan(**span) for span in line["ranks"])
    return TaskReport(ranks=ranks, shape=Shape(**line["shape"]), **rest)
