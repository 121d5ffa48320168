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

# A training of weeks has more steps than a report of all tasks should hold; the newest stay.
REPORTED_STEPS = 10_000

_PLAIN = ("model", "world_size", "device", "threads_per_rank", "weight_rule", "emulated")
_TEXTS = ("notes", "stragglers")
_CLIPS = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpan:
    """When one rank of a group worked on a task.

    Args:
        exchange_us: the part of it in exchanges with the group, waiting included; 0 where unknown.
    """

    rank: int
    start_us: int
    end_us: int
    exchange_us: int = 0

    @property
    def own_us(self) -> int:
        """Time without the exchanges: what this rank needed by itself."""
        return max(0, self.end_us - self.start_us - self.exchange_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task, planned and measured.

    Args:
        penalty_ppm: planned slow-down of the group; a measurement without it is the task alone.
        handoff_bytes: what was sent to this task's ranks from the task before.
        handoff_wait_us: longest time that one of them waited for it.
        ranks: measured spans, one per rank of the group.
        recompute: the plan had activations computed again.
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
    handoff_wait_us: int = 0
    recompute: bool = False

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
        sync_us: from the end of the last task until the slowest rank had the summed gradients.
        optimizer_us: optimizer step of the slowest rank.
        overhead_us: mean time per task that the slowest rank spent on neither a task nor waiting.
        gradient_norm: of the whole gradient, before clipping.
        learning_rate: of this step.
        left_out: clips whose files could not be used, each with the reason; they did not count.
        plan_id: the plan in the database that was followed; empty where it is not kept.
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
    gradient_norm: float = 0.0
    learning_rate: float = 0.0
    plan_id: str = ""
    left_out: tuple[tuple[str, str], ...] = ()

    @property
    def clips(self) -> int:
        """Clips that were trained."""
        return sum(task.clips for task in self.tasks if task.task == "denoise")

    @property
    def step_us(self) -> int:
        """The whole step."""
        return self.measured_us + self.sync_us + self.optimizer_us

    def idle_share(self, world_size: int) -> float:
        """Part of the ranks' time until the end of the last task in which they ran no task."""
        busy = sum(span.end_us - span.start_us for task in self.tasks for span in task.ranks)
        whole = self.measured_us * world_size
        return max(0.0, 1 - busy / whole) if whole else 0.0

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
    """The whole run.

    Args:
        notes: what the user should know, such as a checkpoint that could not be kept.
        stragglers: tasks that held up their step, with the rank.
        emulated: tasks slept instead of computing; no time here is one of a training.
        dropped: clips of the manifest that no iteration has, each with the reason.
    """

    model: str
    world_size: int
    device: str
    threads_per_rank: int
    weight_rule: str
    iterations: tuple[IterationReport, ...]
    notes: tuple[str, ...] = ()
    stragglers: tuple[str, ...] = ()
    emulated: bool = False
    dropped: tuple[tuple[str, str], ...] = ()


def report_to_json(report: ReplayReport) -> dict[str, Any]:
    """JSON values that ``report_from_json`` reads back to an equal report."""
    value = {key: getattr(report, key) for key in _PLAIN}
    rows = [iteration_report_to_json(iteration) for iteration in report.iterations]
    texts = {key: list(getattr(report, key)) for key in _TEXTS}
    dropped = {_CLIPS: [list(row) for row in report.dropped]} if report.dropped else {}
    return {"format": REPORT_FORMAT, **value, **texts, **dropped, "iterations": rows}


def iteration_report_to_json(iteration: IterationReport) -> dict[str, Any]:
    """One step as JSON values."""
    row = asdict(iteration)
    row["handoff_bytes"] = iteration.handoff_bytes
    for line, task in zip(row["tasks"], iteration.tasks, strict=True):
        line["start_us"], line["end_us"] = task.start_us, task.end_us
    return row


def report_from_json(value: object) -> ReplayReport:
    """Reads a report back.

    Raises:
        InputError: another format, or a field is missing.
    """
    if not isinstance(value, dict) or value.get("format") != REPORT_FORMAT:
        raise InputError(f"not a report of format {REPORT_FORMAT!r}")
    try:
        iterations = tuple(iteration_report_from_json(row) for row in value["iterations"])
        own = ("format", "iterations", _CLIPS, *_TEXTS)
        rest = {k: v for k, v in value.items() if k not in own}
        notes, stragglers = (tuple(map(str, value.get(key, ()))) for key in _TEXTS)
        return ReplayReport(
            iterations=iterations,
            notes=notes,
            stragglers=stragglers,
            dropped=tuple((str(clip), str(why)) for clip, why in value.get(_CLIPS, ())),
            **rest,
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"malformed report: {error}") from error


def run_records(report: ReplayReport, plan_ids: Sequence[str] = ()) -> tuple[RunRecord, ...]:
    """One record per step whose plan is stored.

    Args:
        report: of the run.
        plan_ids: stored plan of each of the job's iterations, for steps that name none.
    """
    whole = {k: v for k, v in report_to_json(report).items() if k != "iterations"}
    records = []
    for iteration in report.iterations:
        plan_id = iteration.plan_id
        if not plan_id and plan_ids:
            plan_id = plan_ids[iteration.step % len(plan_ids)]
        if plan_id:
            row = iteration_report_to_json(iteration)
            records.append(
                RunRecord(
                    plan_id=plan_id,
                    status="emulated" if report.emulated else "done",
                    world_size=report.world_size,
                    planned_us=iteration.planned_us,
                    measured_us=iteration.measured_us,
                    report={**whole, "iterations": [row]},
                )
            )
    return tuple(records)


def measurements(report: ReplayReport, *, skip_steps: int = 0) -> tuple[Measurement, ...]:
    """Samples for a cost model, none of a rehearsal; ``skip_steps`` leaves out warm-up steps.

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
            recompute=task.recompute,
        )
        for iteration in report.iterations
        if iteration.step >= skip_steps and not report.emulated
        for task in iteration.tasks
    )


def iteration_report_from_json(row: dict[str, Any]) -> IterationReport:
    """Reads one step back; a missing key is a KeyError or TypeError."""
    derived = ("handoff_bytes",)
    tasks = tuple(_task(line) for line in row["tasks"])
    left_out = tuple((str(clip), str(why)) for clip, why in row.get("left_out", ()))
    rest = {k: v for k, v in row.items() if k not in ("tasks", "left_out", *derived)}
    return IterationReport(tasks=tasks, left_out=left_out, **rest)


def _task(line: dict[str, Any]) -> TaskReport:
    derived = ("start_us", "end_us", "ranks", "shape")
    rest = {k: v for k, v in line.items() if k not in derived}
    ranks = tuple(RankSpan(**span) for span in line["ranks"])
    return TaskReport(ranks=ranks, shape=Shape(**line["shape"]), **rest)
