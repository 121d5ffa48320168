"""``arachne simulate``: replay a plan as discrete events, draw it, trace it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import CascadePlan, plan_from_json
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.cascade.simulate import Simulation
from arachne_opt.cascade.simulate import simulate as run_simulation
from arachne_opt.cli.options import OUTPUT, PATH, database_option, format_option
from arachne_opt.cli.output import draw, emit_json, iteration_text, percent
from arachne_opt.cli.pictures import plot_option, write_plot, write_trace
from arachne_opt.cli.simulate_pipeline import simulate_pipeline
from arachne_opt.errors import InputError
from arachne_opt.planning.service import plan_of_record
from arachne_opt.records import PlanRecord
from arachne_opt.report.cascade_timeline import planned_timeline
from arachne_opt.settings import database_url
from arachne_opt.units import format_bytes, format_seconds


@click.command()
@click.argument("plan")
@click.option("--instances", type=PATH, help="Problems of a plan file: public instances.")
@click.option("--allow-estimates", is_flag=True, help="Use estimated candidates of instances too.")
@click.option("--trace", type=OUTPUT, help="Write a Chrome/Perfetto trace to this file.")
@plot_option
@click.option("--width", type=click.IntRange(min=20), help="Columns of the drawing.")
@database_option
@format_option
def simulate(
    plan: str,
    instances: Path | None,
    allow_estimates: bool,
    trace: Path | None,
    plot: Path | None,
    width: int | None,
    db_url: str | None,
    form: str,
) -> None:
    """Replay a plan as discrete events: makespan, idle share, timeline.

    PLAN is the id of a stored plan, or a file of exported cascade plans together with --instances.

    Example: arachne simulate 6b0c88d6 --trace trace.json
    """
    bound_us = 0
    if instances is not None:
        pairs = _from_file(Path(plan), instances, allow_estimates)
    else:
        record = _record(plan, db_url)
        if record.kind == "pipeline":
            simulate_pipeline(record, form, trace, plot)
            return
        bound_us = record.bound_us
        pairs = [(problem_from_json(record.problem), plan_of_record(record))]
    if (trace or plot) and len(pairs) > 1:
        what = f"{plan} holds {len(pairs)} plans"
        raise InputError(what, hint="--trace and --plot with a file of one plan")
    runs = [_replay(problem, found) for problem, found in pairs]
    if form == "json":
        emit_json("simulation", {"plans": [_body(*row) for row in zip(pairs, runs, strict=True)]})
    else:
        for (problem, found), done in zip(pairs, runs, strict=True):
            _show(problem, found, done, width)
    if trace is not None or plot is not None:
        problem, found = pairs[0]
        timelines = [planned_timeline(problem, found)]
        if trace is not None:
            about = {"problem": problem.name, "makespan_us": found.makespan_us}
            write_trace(trace, timelines, about)
        if plot is not None:
            write_plot(plot, problem.name, timelines, bound_us)


def _show(problem: CascadeProblem, plan: CascadePlan, done: Simulation, width: int | None) -> None:
    makespan, idle = format_seconds(done.makespan_us), percent(done.idle_share)
    click.echo(f"{problem.name}: {makespan}, idle {idle}")
    click.echo(f"iteration {iteration_text(problem, done.makespan_us)}")
    click.echo(f"peak memory {_peak_text(problem, done)}")
    click.echo(draw(problem, plan, width))


def _replay(problem: CascadeProblem, plan: CascadePlan) -> Simulation:
    violations = check_plan(problem, plan)
    if violations:
        lines = "\n".join(f"  {violation}" for violation in violations)
        raise InputError(f"the plan is illegal:\n{lines}", where=problem.name)
    return run_simulation(problem, plan)


def _body(pair: tuple[CascadeProblem, CascadePlan], done: Simulation) -> dict[str, Any]:
    problem, plan = pair
    return {
        "name": problem.name,
        "makespan_us": done.makespan_us,
        "planned_us": plan.makespan_us,
        "tail_us": problem.tail_us,
        "iteration_us": problem.iteration_us(done.makespan_us),
        "idle_share": done.idle_share,
        "busy_us": list(done.busy_us),
        "cross_node_groups": done.cross_node_groups,
        "peak_devices": done.peak_devices,
        "peak_bytes": list(done.peak_bytes),
    }


def _peak_text(problem: CascadeProblem, done: Simulation) -> str:
    """The fullest device of each type."""
    devices = problem.cluster.devices
    parts = []
    for name, kind in problem.cluster.device_types.items():
        peaks = [(done.peak_bytes[d.index], d.index) for d in devices if d.device_type == kind]
        size, device = max(peaks, key=lambda row: (row[0], -row[1]))
        there = format_bytes(kind.memory_bytes)
        parts.append(f"{format_bytes(size)} of {there} on device {device} ({name})")
    return ", ".join(parts)


def _record(plan_id: str, db_url: str | None) -> PlanRecord:
    from arachne_opt.db.store import PlanStore

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        return store.get_plan(plan_id)


def _from_file(
    path: Path, instances: Path, allow_estimates: bool
) -> list[tuple[CascadeProblem, CascadePlan]]:
    values = read_plan_file(path)
    from arachne_opt.importers.instances import read_instances

    names = tuple(str(value.get("instance")) for value in values)
    found = read_instances(instances, allow_estimates=allow_estimates, only=names)
    problems = {i.problem.name: i.problem for i in found}
    missing = [name for name in names if name not in problems]
    if missing:
        raise InputError(f"no instance {missing[0]!r} in {instances}", where=str(path))
    return [
        (problems[name], plan_from_json(value, problems[name]))
        for name, value in zip(names, values, strict=True)
    ]


def read_plan_file(path: Path) -> list[dict[str, object]]:
    """The plans of a file with one JSON document per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InputError(f"cannot read: {error.strerror}", where=str(path)) from error
    values = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InputError(f"no JSON: {error}", where=f"{path}:{number}") from error
        if not isinstance(value, dict):
            raise InputError("a plan is a JSON object", where=f"{path}:{number}")
        values.append(value)
    if not values:
        raise InputError("no plan in the file", where=str(path))
    return values
