"""``arachne solve pipeline --trace``: planners on a cluster that changes."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.options import limits_of
from arachne_opt.cli.output import emit_json, emit_table
from arachne_opt.cli.progress import Interrupts, ProgressLine, catch_interrupts
from arachne_opt.errors import INTERRUPTED, InputError

if TYPE_CHECKING:
    from arachne_opt.bench.traces import Event, Planner, Played
    from arachne_opt.pipeline.problem import PipelineOptions, PipelineProblem
    from arachne_opt.solvers.base import Limits

OURS, KEPT = "ours", "ours, plans kept"


def play_trace(options: dict[str, Any], choices: PipelineOptions, *, limit_given: bool) -> int:
    """Plays a trace for every model asked for, with our planner and the peers' rules."""
    from arachne_opt.bench.traces import USUAL_REPLAN_S
    from arachne_opt.importers.pipeline_scenarios import read_scenario

    scenario = read_scenario(options["trace"])
    if not scenario.events:
        what = f"scenario {scenario.name} has no events"
        raise InputError(what, where=options["trace"], hint="--scenario")
    limits = limits_of(options)
    if not limit_given:
        limits = dataclasses.replace(limits, time_limit_s=USUAL_REPLAN_S)
    models = [options["model"]] if options["model"] else list(scenario.models)
    found: dict[str, list[Played]] = {}
    with catch_interrupts() as interrupts:
        for model in models:
            problems = _problems(options, choices, model)
            found[model] = interrupts.run(
                lambda p=problems: _play_all(p, scenario.event_s, limits, interrupts)  # type: ignore[misc]  # a default binds the loop's value
            )
            if interrupts.pressed():
                return INTERRUPTED
    _show(found, scenario.event_s, options["form"])
    return 0


def _problems(
    options: dict[str, Any], choices: PipelineOptions, model: str
) -> list[PipelineProblem]:
    from arachne_opt.importers.pipeline_scenarios import read_scenario
    from arachne_opt.importers.scenario_problems import scenario_problem

    scenario = read_scenario(options["trace"])
    return [
        scenario_problem(
            scenario,
            Path(options["profiles"]),
            model=model,
            event=event,
            options=choices,
            allow_estimates=options["allow_estimates"],
        )
        for event in range(scenario.event_count)
    ]


def _play_all(
    problems: list[PipelineProblem], event_s: float, limits: Limits, interrupts: Interrupts
) -> list[Played]:
    from arachne_opt.bench.traces import by_rule, ours
    from arachne_opt.db.store import PlanStore
    from arachne_opt.planning.pipeline_service import PipelineService
    from arachne_opt.solvers.pipeline.registry import pipeline_rule_names

    found = [_play(OURS, ours(PipelineService(None), limits), problems, event_s)]
    with (
        tempfile.TemporaryDirectory() as folder,
        PlanStore.open(str(Path(folder) / "plans.db")) as store,
    ):
        found.append(_play(KEPT, ours(PipelineService(store), limits), problems, event_s))
    for name in pipeline_rule_names():
        if interrupts.pressed():
            break
        found.append(_play(name, by_rule(name, limits), problems, event_s))
    return found


def _play(planner: str, decide: Planner, problems: list[PipelineProblem], event_s: float) -> Played:
    from arachne_opt.bench.traces import play

    line, done = ProgressLine(), 0

    def on_event(event: Event) -> None:
        nonlocal done
        done += 1
        line.show(f"{planner}: [{done}/{len(problems)}] {event.cluster}, {event.samples} samples")

    played = play(planner, decide, problems, event_s, on_event)
    line.clear()
    return played


def _show(found: dict[str, list[Played]], event_s: float, form: str) -> None:
    if form == "json":
        traces = {model: [_json(p) for p in played] for model, played in found.items()}
        emit_json("pipeline-trace", {"event_s": event_s, "models": traces})
        return
    for model, played in found.items():
        click.echo(f"{model}: {len(played[0].events)} clusters of {event_s:.0f} s each")
        _show_events(played[0])
        _show_planners(played)


def _show_events(played: Played) -> None:
    rows = []
    for event in played.events:
        row: list[object] = [event.cluster, f"{event.planning_s:.2f}"]
        if (decision := event.decision) is None:
            rows.append([*row, "no plan", None, None, event.samples])
            continue
        row += [decision.choice, f"{decision.relayout.seconds:.2f}", f"{decision.iteration_s:.3f}"]
        rows.append([*row, event.samples])
    emit_table(["cluster", "planning s", "structure", "move s", "iteration s", "samples"], rows)


def _show_planners(played: list[Played]) -> None:
    base = played[0].samples
    rows = [
        [
            p.planner,
            p.samples,
            f"{base / p.samples:.3f}" if p.samples else None,
            f"{p.planning_s:.2f}",
            f"{p.median_planning_s:.2f}",
            f"{p.relayout_s:.2f}",
            p.without_plan,
        ]
        for p in played
    ]
    head = ["planner", "samples", "ours over it", "planning s", "median", "moves s", "no plan"]
    emit_table(head, rows)


def _json(played: Played) -> dict[str, Any]:
    return {
        "planner": played.planner,
        "samples": played.samples,
        "planning_s": played.planning_s,
        "median_planning_s": played.median_planning_s,
        "relayout_s": played.relayout_s,
        "events": [
            {
                "cluster": e.cluster,
                "planning_s": e.planning_s,
                "samples": e.samples,
                "choice": e.decision.choice if e.decision else None,
                "iteration_s": e.decision.iteration_s if e.decision else None,
                "relayout_s": e.decision.relayout.seconds if e.decision else None,
                "devices": e.decision.plan.devices_used() if e.decision else None,
            }
            for e in played.events
        ],
    }
