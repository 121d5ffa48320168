"""``arachne bench pipelines``: our pipeline plans beside peers' rules and stored figures."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arachne_opt.cli.options import FILE, OUTPUT, format_option, limit_options, limits_of
from arachne_opt.cli.output import emit_json, emit_table, percent, write_whole
from arachne_opt.cli.progress import Interrupts, ProgressLine, catch_interrupts
from arachne_opt.cli.workers import workers_of, workers_options
from arachne_opt.errors import INTERRUPTED, InputError, NoPlanError

if TYPE_CHECKING:
    from arachne_opt.bench.pipelines import PipelineRow
    from arachne_opt.bench.ratios import Ratios
    from arachne_opt.importers.pipeline_scenarios import Scenario
    from arachne_opt.learning.jobs import Workers
    from arachne_opt.pipeline.problem import PipelineProblem


@click.command("pipelines")
@click.option("--scenarios", "file", type=FILE, required=True, help="A file of scenarios.")
@click.option(
    "--profiles",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of measured profiles.",
)
@click.option("--only", multiple=True, metavar="GLOB", help="Only scenarios with such an id.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="No scenarios with such an id.")
@click.option("--solver", default="portfolio", show_default=True, help="Method by name.")
@click.option("--exact/--no-exact", default=True, help="Solve without excess samples too.")
@click.option("--ablation", is_flag=True, help="Solve with one freedom taken away, each in turn.")
@click.option("--allow-estimates", is_flag=True, help="Estimate what was not measured.")
@click.option("--out", type=OUTPUT, help="Write our plans to this file, one JSON line each.")
@workers_options
@limit_options
@format_option
def pipelines(**options: Any) -> int:  # noqa: ANN401
    """Plan pipeline scenarios; print ratios to peers' rules and stored figures, and bounds.

    As the peers do, plans may train a few samples beyond the global batch; ``exact`` shows ours
    without. Scenarios of changing clusters belong to ``arachne solve pipeline --trace``.

    \b
    Example:
      arachne bench pipelines --scenarios scenarios.json --profiles FOLDER --only 'D*'
    """
    from arachne_opt.bench.pipelines import compare_pipelines

    rows: list[PipelineRow] = []
    scenarios = _chosen(options)
    problems = [_problem(scenario, options) for scenario in scenarios]
    compare = functools.partial(
        compare_pipelines,
        limits=limits_of(options),
        solver=options["solver"],
        exact=options["exact"],
        ablation=options["ablation"],
    )
    pairs = list(zip(problems, scenarios, strict=True))
    with catch_interrupts() as interrupts:
        if workers_of(options).alone:
            _run(compare, pairs, interrupts, rows)
        else:
            _run_many(compare, pairs, workers_of(options), interrupts, rows)
    if options["out"]:
        _write_plans(options["out"], rows)
    _show(rows, options["form"])
    if len(rows) < len(scenarios):
        click.echo(f"interrupted after {len(rows)} of {len(scenarios)} scenarios", err=True)
        return INTERRUPTED
    return NoPlanError.exit_code if any(row.out_of_time for row in rows) else 0


def _run(
    compare: Callable[..., PipelineRow],
    pairs: Sequence[tuple[PipelineProblem, Scenario]],
    interrupts: Interrupts,
    rows: list[PipelineRow],
) -> None:
    """Appends a row per scenario; ends after the current one on Ctrl-C."""
    line = ProgressLine()
    for number, (problem, scenario) in enumerate(pairs, start=1):
        line.show(f"[{number}/{len(pairs)}] {scenario.name}", force=True)
        stop = interrupts.pressed
        work = functools.partial(compare, problem, scenario=scenario, should_stop=stop)
        row = interrupts.run(work)
        line.clear()
        if interrupts.pressed():
            return  # its search was cut short: no fair figure
        rows.append(row)


def _run_many(
    compare: Callable[..., PipelineRow],
    pairs: Sequence[tuple[PipelineProblem, Scenario]],
    workers: Workers,
    interrupts: Interrupts,
    rows: list[PipelineRow],
) -> None:
    """The same on several scenarios at a time; they share the cores of their machines."""
    from arachne_opt.bench.pipelines import compare_pair
    from arachne_opt.learning.jobs import run_many

    line, found = ProgressLine(), dict[int, "PipelineRow"]()
    work = functools.partial(compare_pair, compare)
    for position, row in run_many(work, pairs, workers, should_stop=interrupts.pressed):
        found[position] = row
        line.show(f"[{len(found)}/{len(pairs)}] {row.problem.name}")
    line.clear()
    rows += [found[position] for position in sorted(found)]


def _chosen(options: dict[str, Any]) -> list[Scenario]:
    from arachne_opt.importers.pipeline_scenarios import read_scenarios

    only, exclude = options["only"] or ("*",), options["exclude"]
    found = [
        s
        for s in read_scenarios(options["file"])
        if not s.events
        and any(fnmatchcase(s.name, glob) for glob in only)
        and not any(fnmatchcase(s.name, glob) for glob in exclude)
    ]
    if not found:
        raise InputError(f"no scenario matches {', '.join(only)}", where=str(options["file"]))
    return found


def _problem(scenario: Scenario, options: dict[str, Any]) -> PipelineProblem:
    from arachne_opt.importers.scenario_problems import scenario_problem
    from arachne_opt.pipeline.problem import PipelineOptions

    return scenario_problem(
        scenario,
        options["profiles"],
        options=PipelineOptions(allow_excess=True),
        allow_estimates=options["allow_estimates"],
    )


def _write_plans(path: Path, rows: Sequence[PipelineRow]) -> None:
    from arachne_opt.pipeline.plan_json import plan_to_json

    plans = [plan_to_json(row.plan) | {"scenario": row.problem.name} for row in rows if row.plan]
    write_whole(path, "".join(json.dumps(plan) + "\n" for plan in plans))


def _show(rows: Sequence[PipelineRow], form: str) -> None:
    from arachne_opt.bench.pipelines import summarise_ablations, summarise_pipelines

    if form == "json":
        body = {"scenarios": [_json(row) for row in rows]}
        for key, found in [
            ("ratios", summarise_pipelines(rows)),
            ("ablations", summarise_ablations(rows)),
        ]:
            body[key] = [{"name": n} | _ratio_json(r) for n, r in found.items()]
        emit_json("bench-pipelines", body)
        return
    emit_table(_HEAD, [_line(row) for row in rows])
    for row in rows:
        if row.binding:
            click.echo(f"{row.problem.name}: no plan exists: {'; '.join(row.binding)}")
        if row.out_of_time:
            click.echo(f"{row.problem.name}: no plan was found in time; try a longer --time-limit")
    _show_others(rows)
    _show_ratios("our time over that of", summarise_pipelines(rows))
    _show_ratios("time over ours with", summarise_ablations(rows))


_HEAD = [
    "scenario", "devices", "ours s", "cautious s", "exact s", "best known", "ratio",
    "best rule", "ratio", "work bound s", "gap", "columns' bound", "planning s",
]  # fmt: skip


def _line(row: PipelineRow) -> list[object]:
    result, ours_s = row.result, row.iteration_s
    head: list[object] = [row.problem.name, row.problem.cluster.device_count]
    if result is None or ours_s is None:
        return [*head, *[None] * (len(_HEAD) - len(head))]
    return [
        *head,
        _seconds(ours_s),
        _seconds(result.cautious_s),
        _seconds(row.exact_s),
        *_with_ratio(ours_s, row.best_known_s),
        *_with_ratio(ours_s, row.best_rule_s),
        _seconds(result.bound_s),
        percent(result.gap),
        _seconds(result.column_bound_s),
        f"{result.wall_s:.2f}",
    ]


def _show_others(rows: Sequence[PipelineRow]) -> None:
    """Times of rules and stored figures, one column each, and of the ablations."""
    names = list(dict.fromkeys(name for row in rows for name in _others(row)))
    if names:
        click.echo()
        lines = [
            [
                row.problem.name,
                _seconds(row.iteration_s),
                *[_seconds(_others(row).get(n)) for n in names],
            ]
            for row in rows
        ]
        emit_table(["scenario", "ours", *names], lines)


def _others(row: PipelineRow) -> dict[str, float | None]:
    peers = row.scenario.peers if row.scenario else {}
    stored = {name: figure.iteration_s for name, figure in peers.items()}
    return {**row.rules_s, **stored, **row.ablations_s}


def _show_ratios(what: str, found: dict[str, Ratios]) -> None:
    if not found:
        return
    click.echo()
    rows = [
        [
            name,
            r.count,
            f"{r.mean:.3f}",
            f"{r.best:.3f}",
            f"{r.worst:.3f}",
            r.wins,
            r.ties,
            r.losses,
        ]
        for name, r in found.items()
    ]
    emit_table([what, "count", "mean", "best", "worst", "below", "equal", "above"], rows)


def _with_ratio(ours_s: float, theirs_s: float | None) -> tuple[str | None, str | None]:
    if theirs_s is None:
        return None, None
    return _seconds(theirs_s), f"{ours_s / theirs_s:.3f}"


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _json(row: PipelineRow) -> dict[str, Any]:
    result = row.result
    return {
        "scenario": row.problem.name,
        "cluster": row.problem.cluster.name,
        "iteration_s": row.iteration_s,
        "cautious_s": result.cautious_s if result else None,
        "exact_s": row.exact_s,
        "bound_s": result.bound_s if result else None,
        "column_bound_s": result.column_bound_s if result else None,
        "planning_s": result.wall_s if result else None,
        "opponents_s": row.opponents_s,
        "ablations_s": dict(row.ablations_s),
        "binding": list(row.binding),
    }


def _ratio_json(ratios: Ratios) -> dict[str, Any]:
    keys = ("count", "mean", "best", "worst", "wins", "ties", "losses")
    return {key: getattr(ratios, key) for key in keys}
