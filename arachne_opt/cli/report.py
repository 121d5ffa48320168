"""``arachne report``: a plan or a run as one page that opens anywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from arachne_opt.cli.options import OUTPUT, database_option
from arachne_opt.cli.output import write_whole
from arachne_opt.cli.pictures import plot_option, write_plot, write_trace
from arachne_opt.settings import database_url

if TYPE_CHECKING:
    from arachne_opt.report.subject import Subject


@click.command()
@click.argument("target", metavar="PLAN|RUN")
@click.option("-o", "--out", type=OUTPUT, required=True, help="The HTML file to write.")
@click.option("--compare", metavar="PLAN|RUN", help="Show another plan beside it.")
@click.option(
    "--baselines/--no-baselines",
    default=True,
    show_default=True,
    help="Run peers' cheap rules on the problem, for the speed-up.",
)
@click.option(
    "--baseline-time",
    "budget_s",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="Seconds for all rules; those that are not begun by then are named.",
)
@click.option("--trace", type=OUTPUT, help="Write a Chrome/Perfetto trace to this file too.")
@plot_option
@database_option
def report(
    target: str,
    out: Path,
    compare: str | None,
    baselines: bool,
    budget_s: float,
    trace: Path | None,
    plot: Path | None,
    db_url: str | None,
) -> None:
    """Write a report of a stored plan, or of a run over its plan, as one HTML page.

    The page has the proof, a timeline to zoom, devices and memory over time, a map of the cluster,
    why each task got its degree, and all tasks in a table. It loads nothing from anywhere.

    \b
    Examples:
      arachne report 6b0c88d6 -o report.html
      arachne report RUN -o report.html --trace trace.json --plot gantt.svg
      arachne report PLAN -o report.html --compare OTHER
    """
    from arachne_opt.cli.report_sources import find_subject
    from arachne_opt.db.store import PlanStore
    from arachne_opt.report.document import report_document
    from arachne_opt.report.page import render_page
    from arachne_opt.report.subject import timelines_of

    with PlanStore.open(database_url(db_url), read_only=True) as store:
        subject = find_subject(store, target)
        other = find_subject(store, compare) if compare is not None else None
    changes = _changes(other, subject)  # refuses plans of two kinds before any work
    subject = with_rivals(subject, budget_s) if baselines else subject
    write_whole(out, render_page(report_document(subject, other, changes)))
    click.echo(f"report written to {out}", err=True)
    if trace is not None:
        about = {"plan": subject.record.id, "problem": subject.record.name}
        write_trace(trace, timelines_of(subject), about)
    if plot is not None:
        record = subject.record
        write_plot(plot, record.name, timelines_of(subject), record.bound_us)


def _changes(old: Subject | None, new: Subject) -> list[str]:
    """What changed from one plan to another of its kind, in words."""
    from arachne_opt.cli.plan_diff import objective_changes, plan_changes

    if old is None:
        return []
    return objective_changes(old.record, new.record) + plan_changes(old.record, new.record)


def with_rivals(subject: Subject, budget_s: float) -> Subject:
    """The subject with what peers' rules make of its problem."""
    from arachne_opt.planning.rivals import cascade_rivals, pipeline_rivals
    from arachne_opt.report.subject import CascadeSubject

    seed = subject.record.seed
    if isinstance(subject, CascadeSubject):
        rivals = cascade_rivals(subject.problem, budget_s=budget_s, seed=seed)
        return replace(subject, rivals=rivals)
    rivals = pipeline_rivals(subject.problem, budget_s=budget_s, seed=seed)
    return replace(subject, rivals=rivals)
