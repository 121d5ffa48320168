"""Puts the traces of all ranks together into the report of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from arachne_opt.executor.job import ReplayIteration
from arachne_opt.executor.report import IterationReport, RankSpan, TaskReport
from arachne_opt.executor.trace import RankTrace


def step_report(
    iteration: ReplayIteration,
    ranks: Sequence[RankTrace],
    learning_rate: float,
    left_out: Mapping[str, str] | None = None,
) -> IterationReport:
    """What a step measured.

    Args:
        iteration: what was run.
        ranks: the trace of each rank, in order.
        learning_rate: of the step.
        left_out: why clips did not count, by their id.
    """
    first = ranks[0]
    synced_us = max(trace.synced_us for trace in ranks)
    return IterationReport(
        name=iteration.name,
        step=first.step,
        loss=first.loss,
        planned_us=iteration.plan.makespan_us,
        measured_us=first.makespan_us,
        sync_us=max(0, synced_us - first.makespan_us),
        optimizer_us=max(trace.stepped_us - trace.synced_us for trace in ranks),
        overhead_us=max(trace.overhead_us for trace in ranks),
        tasks=tuple(
            _task(iteration, ranks, index) for index in range(len(iteration.plan.placements))
        ),
        gradient_norm=first.norm,
        learning_rate=learning_rate,
        plan_id=iteration.plan_id,
        left_out=tuple(sorted((left_out or {}).items())),
    )


def _task(iteration: ReplayIteration, ranks: Sequence[RankTrace], index: int) -> TaskReport:
    placement = iteration.plan.placements[index]
    batch = iteration.batch_of(placement.cascade)
    cluster = iteration.problem.cluster
    task = iteration.problem.cascades[placement.cascade].tasks[placement.task]
    traces = {rank: ranks[rank] for rank in sorted(placement.devices)}
    takes = bool(task.predecessors)
    return TaskReport(
        micro_batch=batch.id,
        task=task.name,
        shape=batch.shape,
        clips=batch.size,
        text_tokens=batch.text_tokens,
        device_type=cluster.devices[placement.devices[0]].device_type.name,
        penalty_ppm=cluster.penalty_ppm(placement.devices),
        planned_start_us=placement.start_us,
        planned_end_us=placement.end_us,
        ranks=tuple(
            RankSpan(
                rank=rank,
                start_us=trace.spans[index][0],
                end_us=trace.spans[index][1],
                exchange_us=trace.exchange_us[index],
            )
            for rank, trace in traces.items()
        ),
        handoff_bytes=sum(t.sent_bytes.get(placement.cascade, 0) for t in ranks) if takes else 0,
        handoff_wait_us=max(t.waits_us.get(placement.cascade, 0) for t in traces.values())
        if takes
        else 0,
        recompute=placement.recompute,
    )
