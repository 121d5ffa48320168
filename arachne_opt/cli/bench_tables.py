"""Tables and JSON of ``arachne bench cascades``."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from arachne_opt import __version__
from arachne_opt.cli.output import emit_json, emit_table, percent
from arachne_opt.solvers.base import Limits
from arachne_opt.units import format_seconds, seconds_from_us

if TYPE_CHECKING:
    from arachne_opt.bench.cascades import Row


def show_rows(rows: Sequence[Row], limits: Limits, form: str) -> None:
    """Prints the comparison as tables or as one JSON document."""
    if form == "json":
        emit_json("bench-cascades", _document(rows, limits))
        return
    click.echo(
        f"{len(rows)} instances, {limits.time_limit_s:g} s each, {limits.workers} workers, "
        f"{os.cpu_count()} cores, seed {limits.seed}, {datetime.date.today()}, "
        f"arachne-opt {__version__}"
    )
    _show_instances(rows)
    _show_ratios(rows)
    _show_summary(rows)
    _show_curve(rows, limits)
    _show_planning_time(rows)


def _show_instances(rows: Sequence[Row]) -> None:
    click.echo("\nOur plans, and the best published makespan of each instance")
    head = ["instance", "GPUs", "makespan", "bound", "gap", "time", "published", "ratio"]
    emit_table(
        [*head, "beaten after", "their planning"],
        [
            [
                row.instance.id + ("*" if row.instance.estimated else ""),
                row.device_count,
                format_seconds(row.makespan_us),
                format_seconds(row.result.bound_us),
                percent(row.result.gap),
                f"{row.result.wall_s:.1f} s",
                _seconds(row.instance.best_published_us),
                _ratio(row.ratio_to_best_published),
                None if row.best_beaten_s is None else f"{row.best_beaten_s:.2f} s",
                None if row.instance.planning_s is None else f"{row.instance.planning_s:.1f} s",
            ]
            for row in rows
        ],
    )
    if any(row.instance.estimated for row in rows):
        click.echo("* with estimated candidates, as a task has no others")


def _show_ratios(rows: Sequence[Row]) -> None:
    from arachne_opt.bench.cascades import PUBLISHED, RULES

    click.echo("\nOur makespan over theirs: published figures, then rules charged with penalties")
    head = ["instance", "genetic", "internal", "FlexSP", "Megatron", *RULES]
    table = []
    for row in rows:
        theirs = [row.instance.published_us.get(peer) for peer in PUBLISHED]
        theirs += [row.rules_us.get(rule) for rule in RULES]
        ratios = [_ratio(row.makespan_us / us if us else None) for us in theirs]
        table.append([row.instance.id, *ratios])
    emit_table(head, table)


def _show_summary(rows: Sequence[Row]) -> None:
    from arachne_opt.bench.cascades import summarise

    click.echo("\nOver all instances (below 1 ours is shorter; within 0.1 % is a tie)")
    emit_table(
        ["ours over", "n", "geometric mean", "best", "worst", "wins", "ties", "losses"],
        [
            [name, r.count, *map(_ratio, (r.mean, r.best, r.worst)), r.wins, r.ties, r.losses]
            for name, r in summarise(rows).items()
        ],
    )


def _show_curve(rows: Sequence[Row], limits: Limits) -> None:
    from arachne_opt.bench.curve import gap_curve

    click.echo("\nGap over time, over the bound proven by then and over the final one")
    emit_table(
        ["after", "plans", "mean gap", "worst gap", "mean gap to the final bound"],
        [
            [
                f"{m.elapsed_s:g} s",
                m.plans,
                percent(m.mean_gap),
                percent(m.worst_gap),
                percent(m.mean_gap_to_final),
            ]
            for m in gap_curve([row.result for row in rows], limits.time_limit_s)
        ],
    )
    gaps = [row.result.gap for row in rows if row.result.gap is not None]
    if gaps:
        click.echo(f"in the end: mean {percent(sum(gaps) / len(gaps))}, worst {percent(max(gaps))}")


def _show_planning_time(rows: Sequence[Row]) -> None:
    timed = [row for row in rows if row.instance.planning_s]
    if not timed:
        return
    ours = sum(row.result.wall_s for row in timed) / len(timed)
    theirs = sum(row.instance.planning_s or 0.0 for row in timed) / len(timed)
    text = f"\nPlanning time where one is published ({len(timed)}): ours {ours:.1f} s, "
    text += f"genetic {theirs:.1f} s"
    beaten = [row.best_beaten_s for row in timed if row.best_beaten_s is not None]
    if beaten:
        text += f"; every published makespan beaten after {sum(beaten) / len(beaten):.2f} s "
        text += f"on average, {max(beaten):.2f} s at most ({len(beaten)} of {len(timed)})"
    click.echo(text)


def _document(rows: Sequence[Row], limits: Limits) -> dict[str, Any]:
    from arachne_opt.bench.cascades import summarise
    from arachne_opt.bench.curve import gap_curve

    curve = gap_curve([row.result for row in rows], limits.time_limit_s)
    return {
        "version": __version__,
        "date": str(datetime.date.today()),
        "cores": os.cpu_count(),
        "limits": dataclasses.asdict(limits),
        "instances": [_instance(row) for row in rows],
        "summary": {name: dataclasses.asdict(r) for name, r in summarise(rows).items()},
        "gap_over_time": [dataclasses.asdict(moment) for moment in curve],
    }


def _instance(row: Row) -> dict[str, Any]:
    result = row.result
    return {
        "id": row.instance.id,
        "devices": row.device_count,
        "estimated": row.instance.estimated,
        "makespan_us": row.makespan_us,
        "bound_us": result.bound_us,
        "gap": result.gap,
        "status": result.status.value,
        "solver": result.solver,
        "wall_s": result.wall_s,
        "published_us": dict(row.instance.published_us),
        "published_planning_s": row.instance.planning_s,
        "best_published_beaten_s": row.best_beaten_s,
        "rules_us": dict(row.rules_us),
        "history": [
            {"elapsed_s": e.elapsed_s, "makespan_us": e.objective_us, "bound_us": e.bound_us}
            for e in result.history
        ],
    }


def _seconds(duration_us: int | None) -> str | None:
    return None if duration_us is None else f"{seconds_from_us(duration_us):.3f} s"


def _ratio(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
