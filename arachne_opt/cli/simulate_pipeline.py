"""``arachne simulate`` of pipeline plans."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.output import emit_json, emit_table, percent
from arachne_opt.cli.pictures import write_plot, write_trace
from arachne_opt.errors import InputError
from arachne_opt.records import PlanRecord
from arachne_opt.units import format_seconds, us_from_seconds

if TYPE_CHECKING:
    from arachne_opt.pipeline.plan import PipelinePlan
    from arachne_opt.pipeline.problem import PipelineProblem
    from arachne_opt.pipeline.simulate import Simulation


def simulate_pipeline(record: PlanRecord, form: str, trace: Path | None, plot: Path | None) -> None:
    """Replays a stored pipeline plan: times, bubbles, and the timeline in files."""
    from arachne_opt.pipeline.problem_json import problem_from_json
    from arachne_opt.planning.pipeline_service import pipeline_plan_of_record
    from arachne_opt.report.pipeline_timeline import planned_timeline, simulated

    problem, plan = problem_from_json(record.problem), pipeline_plan_of_record(record)
    _require_legal(problem, plan)
    done = simulated(problem, plan)
    if form == "json":
        emit_json("pipeline-simulation", _body(record, done))
    else:
        _show(record, done)
    if trace is None and plot is None:
        return
    timeline = planned_timeline(problem, plan, done)
    if trace is not None:
        write_trace(trace, [timeline], {"plan": record.id, "problem": record.name})
    if plot is not None:
        write_plot(plot, record.name, [timeline], record.bound_us)


def _require_legal(problem: PipelineProblem, plan: PipelinePlan) -> None:
    from arachne_opt.pipeline.check import check_plan

    if violations := check_plan(problem, plan):
        lines = "\n".join(f"  {violation}" for violation in violations)
        raise InputError(f"the plan is illegal:\n{lines}", where=problem.name)


def _body(record: PlanRecord, done: Simulation) -> dict[str, Any]:
    return {
        "name": record.name,
        "planned_us": record.objective_us,
        "iteration_s": done.iteration_s,
        "pipelines_s": list(done.pipelines_s),
        "update_s": list(done.update_s),
        "bubble": done.bubble,
        "stages": [
            {
                "pipeline": s.pipeline,
                "stage": s.stage,
                "busy_s": s.busy_s,
                "send_s": s.send_s,
                "bubble": s.bubble,
                "in_flight": s.in_flight,
                "end_s": s.end_s,
            }
            for s in done.stages
        ],
        "syncs": [
            {"first": s.first, "end": s.end, "start_s": s.start_s, "end_s": s.end_s}
            for s in done.syncs
        ],
    }


def _show(record: PlanRecord, done: Simulation) -> None:
    took = format_seconds(us_from_seconds(done.iteration_s))
    planned = format_seconds(record.objective_us)
    click.echo(f"{record.name}: {took} simulated, {planned} by the closed form")
    rows = [
        [s.pipeline, s.stage, f"{s.busy_s:.3f}", f"{s.send_s:.3f}", percent(s.bubble), s.in_flight]
        for s in done.stages
    ]
    emit_table(["pipeline", "stage", "busy s", "sends s", "waits", "micro-batches kept"], rows)
