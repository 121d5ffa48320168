"""The values of a whole report, ``arachne.report-page/1``: one plan, or two beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arachne_opt.report.cascade_view import cascade_view
from arachne_opt.report.subject import CascadeSubject, Subject
from arachne_opt.report.wording import percent
from arachne_opt.units import format_bytes, format_seconds

DOCUMENT_FORMAT = "arachne.report-page/1"

View = dict[str, Any]


def report_document(
    subject: Subject, other: Subject | None = None, changes: Sequence[str] = ()
) -> dict[str, Any]:
    """What ``page.render_page`` shows.

    Args:
        subject: the plan.
        other: one to compare it with, of the same kind.
        changes: what changed from the other plan to this one, in words.
    """
    views = [view_of(subject)]
    comparison = None
    if other is not None:
        views.append(view_of(other))
        comparison = {"rows": _rows(subject, other, *views), "changes": list(changes)}
    return {"format": DOCUMENT_FORMAT, "views": views, "comparison": comparison}


def view_of(subject: Subject) -> View:
    """One plan as values to draw."""
    if isinstance(subject, CascadeSubject):
        return cascade_view(subject)
    # Late: profiles and tables are only for pipelines.
    from arachne_opt.report.pipeline_view import pipeline_view

    return pipeline_view(subject)


def _rows(a: Subject, b: Subject, view_a: View, view_b: View) -> list[list[str]]:
    """Figure, A, B, change from B to A, and whether that is better or worse."""
    what = "iteration" if view_a["kind"] == "pipeline" else "makespan"
    one, two = a.record, b.record
    rows = [_change(what, one.objective_us, two.objective_us, format_seconds)]
    rows.append(_change("proven bound", one.bound_us, two.bound_us, format_seconds, judge=False))
    gaps = [percent(r.gap) if r.gap is not None else "–" for r in (one, two)]
    rows.append(["gap", *gaps, "", ""])
    rows.append(_change("device time", _area(view_a), _area(view_b), format_seconds))
    rows.append(_change("fullest device", _peak(view_a), _peak(view_b), format_bytes))
    rows.append(_change("groups over nodes", _crossing(view_a), _crossing(view_b), str))
    counts = [len(view["tasks"]["start"]) for view in (view_a, view_b)]
    rows.append(_change("tasks", counts[0], counts[1], str, judge=False))
    rows.append(["solver", one.solver, two.solver, "", ""])
    return rows


def _change(
    what: str, a: int, b: int, say: Callable[[int], str], *, judge: bool = True
) -> list[str]:
    """A row of figures of which less is better."""
    change = f"{100 * (a / b - 1):+.1f} %" if b and a != b else ""
    tone = "" if a == b or not judge else ("better" if a < b else "worse")
    return [what, say(a), say(b), change, tone]


def _area(view: View) -> int:
    tasks = view["tasks"]
    return sum(
        (end - start) * sum(rows[1::2])
        for start, end, rows in zip(tasks["start"], tasks["end"], tasks["rows"], strict=True)
    )


def _peak(view: View) -> int:
    return max((max(series["bytes"]) for series in view["memory"]), default=0)


def _crossing(view: View) -> int:
    return sum(1 for nodes in view["tasks"]["nodes"] if nodes > 1)
