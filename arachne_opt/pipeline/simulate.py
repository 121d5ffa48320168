"""Replays a plan as discrete events, replica by replica; shares no code with solvers."""

from __future__ import annotations

from dataclasses import dataclass

from arachne_opt.errors import InputError
from arachne_opt.pipeline.event_run import PipelineRun, Send, StageTimeline, Task
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.gradient_sync import SegmentSync, exchange
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated iteration.

    Args:
        iteration_s: until the last optimizer update has ended.
        pipelines_s: end of the last operation of each pipeline.
        update_s: slowest optimizer update of each pipeline.
        syncs: gradient exchange by segments of rows, in the order of their start.
        tasks: all operations, by start; empty unless asked for.
        sends: all messages, by start; empty unless asked for.
    """

    iteration_s: float
    pipelines_s: tuple[float, ...]
    update_s: tuple[float, ...]
    stages: tuple[StageTimeline, ...]
    syncs: tuple[SegmentSync, ...]
    tasks: tuple[Task, ...] = ()
    sends: tuple[Send, ...] = ()

    @property
    def bubble(self) -> float:
        """Mean bubble share over all stages."""
        return sum(s.bubble for s in self.stages) / len(self.stages)


def simulate(
    problem: PipelineProblem,
    plan: PipelinePlan,
    *,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    chunks: int = 1,
    blocking_sends: bool = True,
    published_ends: bool = False,
    overlap_sync: bool = False,
    keep_tasks: bool = False,
) -> Simulation:
    """Simulates one iteration of a legal plan.

    Args:
        problem: the prices.
        plan: a plan that passed the checker.
        schedule: order of forwards and backwards.
        chunks: chunks per stage, for the interleaved schedule; each stage's number of rows is cut
            into as many parts, and rows are dealt to the parts in the order of the interleaving.
        blocking_sends: a replica computes nothing while it sends.
        published_ends: with blocking sends, the last stage (and the first of more than three) is
            blocked twice as long, as the published closed form has it.
        overlap_sync: gradients of a segment of rows are exchanged as soon as all its holders have
            them; otherwise after the last operation of all pipelines.
        keep_tasks: keep every operation and message, for timelines.

    Raises:
        InputError: the schedule cannot be used with these micro-batches or rows.
    """
    if chunks < 1 or (chunks > 1 and schedule is not Schedule.INTERLEAVED):
        raise InputError(f"{chunks} chunks with schedule {schedule}")
    facts = Facts(problem)
    runs = [
        PipelineRun(facts, p, pipeline, count, schedule, chunks, blocking_sends, published_ends)
        for p, (pipeline, count) in enumerate(zip(plan.pipelines, plan.counts, strict=True))
    ]
    for run in runs:
        run.play()
    return _summary(facts, runs, overlap_sync, keep_tasks)


def _summary(
    facts: Facts, runs: list[PipelineRun], overlap_sync: bool, keep_tasks: bool
) -> Simulation:
    """Adds gradient exchange and update to pipelines that have been played."""
    tasks = [task for run in runs for task in run.tasks] if keep_tasks else []
    sends = [send for run in runs for send in run.sends] if keep_tasks else []
    ends = [run.end_s for run in runs]
    updates = [run.update_s() for run in runs]
    rows = range(facts.model.row_count)
    ready = [[max(ends)] * len(rows)] * len(runs)
    if overlap_sync:
        ready = [[run.gradient_ready_s(row) for row in rows] for run in runs]
    syncs = exchange(facts, [run.holders for run in runs], ready)
    synced = max([max(ends), *(s.end_s for s in syncs)])
    if overlap_sync:
        iteration = synced + max(updates)
    else:  # like the closed form, which gives each pipeline its own update
        own = max(end + update for end, update in zip(ends, updates, strict=True))
        iteration = own + synced - max(ends)
    return Simulation(
        iteration_s=iteration,
        pipelines_s=tuple(ends),
        update_s=tuple(updates),
        stages=tuple(line for run in runs for line in run.timelines()),
        syncs=syncs,
        tasks=tuple(sorted(tasks, key=_order)),
        sends=tuple(sorted(sends, key=_order)),
    )


def _order(entry: Task | Send) -> tuple[float, int, int, int]:
    return entry.start_s, entry.pipeline, entry.stage, entry.replica
