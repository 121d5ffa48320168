"""Lists of stored plans: filters and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from arachne_opt.cli.output import emit_json, emit_table, percent
from arachne_opt.records import PlanSummary
from arachne_opt.units import format_seconds

Command = TypeVar("Command", bound=Callable[..., Any])

_HEAD = ["plan", "problem", "cluster", "makespan", "bound", "gap", "status", "solver", "created"]


def filter_options(command: Command) -> Command:
    """Which plans, and which page of them: the arguments of ``PlanStore.list_plans``."""
    options = [
        click.option(
            "--limit",
            type=click.IntRange(1, 10_000),
            default=20,
            show_default=True,
            help="Rows to show.",
        ),
        click.option("--offset", type=click.IntRange(min=0), default=0, help="Skip so many."),
        click.option("--name", help="Only problems whose name contains this text."),
        click.option(
            "--kind", type=click.Choice(["cascade", "pipeline"]), help="Only plans of this problem."
        ),
        click.option("--cluster", metavar="NAME", help="Only plans for the cluster of this name."),
        click.option("--solver", metavar="NAME", help="Only plans of this method."),
        click.option(
            "--status",
            type=click.Choice(["optimal", "feasible"]),
            help="Only plans that are proven optimal, or not.",
        ),
        click.option("--fingerprint", help="Only plans of the problem with this fingerprint."),
        click.option(
            "--stale/--current",
            "stale",
            default=None,
            help="Only plans whose prices were replaced by newer ones, or only the others.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def show_summaries(found: Iterable[PlanSummary], form: str) -> None:
    """Prints a row per plan."""
    if form == "json":
        emit_json("plans", {"plans": [{**asdict(row), "gap": row.gap} for row in found]})
        return
    rows = []
    for s in found:
        makespan, bound = format_seconds(s.objective_us), format_seconds(s.bound_us)
        row = [s.id[:12], s.name, s.cluster_name, makespan, bound, percent(s.gap)]
        rows.append([*row, status_words(s), s.solver, s.created_at[:19]])
    emit_table(_HEAD, rows)


def status_words(plan: PlanSummary) -> str:
    """The status, with what keeps the plan from being used."""
    marks = ["stale"] * plan.stale + ["quarantine"] * (plan.quarantine is not None)
    return ", ".join([plan.status, *marks])
