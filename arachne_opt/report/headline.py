"""The first lines of a report: figures, the proof, and what others would take."""

from __future__ import annotations

from typing import Any

from arachne_opt.records import PlanRecord
from arachne_opt.report.subject import Measured, Rival, Subject
from arachne_opt.report.wording import percent, seconds
from arachne_opt.units import format_seconds


def headline_json(subject: Subject, *, idle_share: float, whole_us: int) -> dict[str, Any]:
    """Cards, the proof in a sentence, bars to compare, and where the plan comes from.

    Args:
        subject: the plan.
        idle_share: part of the device time that no task uses.
        whole_us: the whole iteration, with what follows the makespan.
    """
    record = subject.record
    what = "Iteration" if record.kind == "pipeline" else "Makespan"
    time_note = f"iteration {format_seconds(whole_us)}" if whole_us > record.objective_us else ""
    cards = [
        _card(what, format_seconds(record.objective_us), time_note),
        _card("Proven bound", format_seconds(record.bound_us), "no plan at all is shorter"),
        _card("Gap", percent(record.gap) if record.gap is not None else "–", _gap_note(record)),
        _card("Idle", percent(idle_share), "of all device time until the end"),
    ]
    if (best := best_rival(subject)) is not None:
        cards.append(_speed_card(subject, best))
    if subject.measured is not None:
        cards.append(_measured_card(subject.measured))
    return {
        "cards": cards,
        "proof": _proof(record),
        "bars": _bars(subject),
        "facts": _facts(record),
    }


def best_rival(subject: Subject) -> Rival | None:
    """The rule with the shortest time, None where no rule has a plan."""
    known = [r for r in subject.rivals if r.time_us is not None]
    return min(known, key=lambda r: r.time_us or 0, default=None)


def _card(label: str, value: str, note: str) -> dict[str, str]:
    return {"label": label, "value": value, "note": note}


def _speed_card(subject: Subject, best: Rival) -> dict[str, str]:
    """The speed-up over the best rule, and over the first, the plainest one, that has a plan."""
    ours_us = subject.record.objective_us
    plain = next(r for r in subject.rivals if r.time_us is not None)
    asked = sum(r.time_us is not None for r in subject.rivals)
    note = f"over {best.title}" + (f", the best of {asked} rules" if asked > 1 else "")
    if plain is not best:
        note += f"; {(plain.time_us or 0) / ours_us:.2f}× over {plain.title}"
    return _card("Speed-up", f"{(best.time_us or 0) / ours_us:.2f}×", note)


def _gap_note(record: PlanRecord) -> str:
    return "proven optimal" if record.status == "optimal" else "at most so far from the best"


def _measured_card(measured: Measured) -> dict[str, str]:
    ratio = "" if measured.fidelity is None else f"{measured.fidelity:.3f} × planned"
    label = "Rehearsed" if measured.emulated else "Measured"
    if measured.stretch != 1.0:
        ratio += f", run {measured.stretch:.3g} × faster"
    return _card(label, format_seconds(round(measured.measured_us * measured.stretch)), ratio)


def _proof(record: PlanRecord) -> str:
    took = format_seconds(record.objective_us)
    if record.status == "optimal":
        return f"{took}: proven to be the best possible."
    if record.gap is None:
        return f"{took}; no bound is known."
    bound = format_seconds(record.bound_us)
    return f"{took}, at most {percent(record.gap)} above the best possible: no plan beats {bound}."


def _bars(subject: Subject) -> list[dict[str, Any]]:
    """Times on one scale: the bound, this plan, its run, and the rules, the shortest first."""
    record = subject.record
    bars: list[dict[str, Any]] = [
        {"title": "proven bound", "us": record.bound_us, "kind": "bound", "note": ""},
        {"title": "this plan", "us": record.objective_us, "kind": "plan", "note": ""},
    ]
    if (m := subject.measured) is not None:
        title = "rehearsed" if m.emulated else "measured"
        bars.append(
            {"title": title, "us": round(m.measured_us * m.stretch), "kind": "run", "note": ""}
        )
    rivals = sorted(subject.rivals, key=lambda r: (r.time_us is None, r.time_us or 0))
    for rival in rivals:
        note = rival.note
        if rival.time_us is not None:
            note = f"{rival.time_us / record.objective_us:.2f}× this plan"
        bars.append({"title": rival.title, "us": rival.time_us, "kind": "rule", "note": note})
    return bars


def _facts(record: PlanRecord) -> list[list[str]]:
    """Where the plan comes from."""
    versions = ", ".join(f"{name} {number}" for name, number in record.versions.items())
    marks = []
    if record.stale:
        marks.append("stale: newer prices replaced its own")
    if record.quarantine is not None:
        marks.append(f"in quarantine: {record.quarantine}")
    verdict = f"{record.verdict}: checker and simulator agree with the solver"
    solver = f"{record.solver}, seed {record.seed}, {seconds(round(record.wall_s * 1e6))}"
    return [
        ["Plan", record.id],
        ["Problem", record.name],
        ["Cluster", record.cluster_name],
        ["Fingerprint", record.fingerprint],
        ["Prices", record.cost_version or "unnamed"],
        ["Status", "; ".join([record.status, *marks])],
        ["Verdict", verdict],
        ["Solver", solver + (f"; {versions}" if versions else "")],
        ["Created", record.created_at],
    ]
