"""What a run under a pipeline plan measured (``arachne.pipeline-report/1``); knows no torch.

Times are microseconds; those of spans count from the start of their step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from arachne_opt.errors import InputError
from arachne_opt.records import RunRecord
from arachne_opt.units import format_bytes, format_seconds

PIPELINE_REPORT_FORMAT = "arachne.pipeline-report/1"

# A training of weeks has more steps than a report should hold; the newest stay.
REPORTED_STEPS = 10_000

_LISTS = ("steps", "spans", "notes", "moves")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageReport:
    """What a stage spent its time on in one step, as a mean over its ranks.

    Args:
        wait_us: for messages, and for the members of its groups.
        sync_us: sums of gradients, waiting for the other holders included.
    """

    pipeline: int
    stage: int
    compute_us: int
    send_us: int
    wait_us: int
    sync_us: int
    update_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """One optimizer step.

    Args:
        loss: mean over the tokens of the global batch.
        norm: of the whole gradient, before clipping.
        tokens: that counted.
        planned_us: of the simulated iteration.
        measured_us: from the common start until the last rank had updated its weights.
        stages: empty for a step on GPUs that was not watched; see ``recorder``.
    """

    step: int
    loss: float
    norm: float
    tokens: int
    learning_rate: float
    planned_us: int
    measured_us: int
    stages: tuple[StageReport, ...]

    @property
    def fidelity(self) -> float:
        """Measured over planned iteration."""
        return self.measured_us / max(1, self.planned_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSpan:
    """What one rank did from one moment of a step to another.

    Args:
        phase: ``compute``, ``send``, ``wait``, ``sync`` or ``update``.
        forward: belongs to a forward; False too where it belongs to no operation.
        microbatch: -1 where it belongs to no operation.
    """

    rank: int
    phase: str
    forward: bool
    microbatch: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveReport:
    """The training went on under another plan.

    Args:
        step: the first one under the plan.
        plan_id: in the database; empty where it is not kept.
        network_bytes: that went from node to node.
        inside_bytes: that went inside nodes.
    """

    step: int
    plan_id: str
    world_size: int
    network_bytes: int
    inside_bytes: int
    took_us: int

    def __str__(self) -> str:
        """For people."""
        network, inside = format_bytes(self.network_bytes), format_bytes(self.inside_bytes)
        moved = f"{network} over the network and {inside} inside nodes"
        plan = f" {self.plan_id[:12]}" if self.plan_id else ""
        took = format_seconds(self.took_us)
        return f"plan{plan} on {self.world_size} ranks from step {self.step}: {moved}, in {took}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """A run.

    Args:
        plan_id: that it began with.
        world_size: of that plan.
        spans: of all ranks in the last step.
        notes: what the user should know, such as a checkpoint that could not be kept.
        emulated: ranks slept instead of computing.
        speed: times faster than planned, in a rehearsal.
    """

    model: str
    plan_id: str
    world_size: int
    device: str
    steps: tuple[StepReport, ...]
    spans: tuple[RankSpan, ...] = ()
    notes: tuple[str, ...] = ()
    emulated: bool = False
    speed: float = 1.0
    moves: tuple[MoveReport, ...] = ()

    def plan_at(self, step: int) -> tuple[str, int]:
        """The plan of a step, and its number of ranks."""
        for move in reversed(self.moves):
            if move.step <= step:
                return move.plan_id, move.world_size
        return self.plan_id, self.world_size


def report_to_json(report: PipelineReport) -> dict[str, Any]:
    """JSON values that ``report_from_json`` reads back to an equal report."""
    value = asdict(report)
    for key in _LISTS:
        value[key] = list(value[key])
    return {"format": PIPELINE_REPORT_FORMAT, **value}


def report_from_json(value: object) -> PipelineReport:
    """Reads a report back.

    Raises:
        InputError: another format, or a field is missing.
    """
    if not isinstance(value, dict) or value.get("format") != PIPELINE_REPORT_FORMAT:
        raise InputError(f"not a report of format {PIPELINE_REPORT_FORMAT!r}")
    try:
        rest = {k: v for k, v in value.items() if k not in ("format", *_LISTS)}
        return PipelineReport(
            steps=tuple(_step(row) for row in value["steps"]),
            spans=tuple(RankSpan(**row) for row in value["spans"]),
            notes=tuple(map(str, value["notes"])),
            moves=tuple(MoveReport(**row) for row in value.get("moves", ())),
            **rest,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"malformed report: {error}") from error


def run_records(report: PipelineReport) -> tuple[RunRecord, ...]:
    """A record per step, with what its stages spent their time on; none without a stored plan.

    That of the last step has the spans, so that it can be drawn over its plan.
    """
    whole = {k: v for k, v in report_to_json(report).items() if k != "steps"}
    spans, last = whole.pop("spans"), len(report.steps) - 1
    records = []
    for i, step in enumerate(report.steps):
        plan_id, world_size = report.plan_at(step.step)
        if not plan_id:
            continue
        record = RunRecord(
            plan_id=plan_id,
            status="emulated" if report.emulated else "done",
            world_size=world_size,
            planned_us=step.planned_us,
            measured_us=step.measured_us,
            report={**whole, "steps": [asdict(step)], "spans": spans if i == last else []},
        )
        records.append(record)
    return tuple(records)


def stage_reports(
    places: Sequence[tuple[int, int]], sums_us: Sequence[Sequence[float]]
) -> tuple[StageReport, ...]:
    """Means over the ranks of each stage.

    Args:
        places: pipeline and stage of each rank.
        sums_us: of each rank, compute, send, wait, sync and update.
    """
    found: dict[tuple[int, int], list[Sequence[float]]] = {}
    for place, sums in zip(places, sums_us, strict=True):
        found.setdefault(place, []).append(sums)
    rows = []
    for (pipeline, stage), ranks in sorted(found.items()):
        compute, send, wait, sync, update = (
            round(sum(column) / len(ranks)) for column in zip(*ranks, strict=True)
        )
        rows.append(
            StageReport(
                pipeline=pipeline,
                stage=stage,
                compute_us=compute,
                send_us=send,
                wait_us=wait,
                sync_us=sync,
                update_us=update,
            )
        )
    return tuple(rows)


def _step(row: dict[str, Any]) -> StepReport:
    stages = tuple(StageReport(**stage) for stage in row["stages"])
    return StepReport(**{**row, "stages": stages})
