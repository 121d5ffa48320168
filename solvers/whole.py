"""Results for the usable part of a problem as results for the whole."""

from __future__ import annotations

from dataclasses import replace

from arachne_opt.cascade.usable import UsablePart
from arachne_opt.solvers.base import Progress, ProgressCallback, Result


def to_whole(part: UsablePart, result: Result) -> Result:
    """The result with the device numbers of the whole problem; the bound counts usable devices."""
    history = tuple(_whole(part, event) for event in result.history)
    plan = None if result.plan is None else part.to_whole(result.plan)
    return replace(result, plan=plan, history=history)


def whole_progress(part: UsablePart, told: ProgressCallback) -> ProgressCallback:
    """A callback for the solver of the part that tells one of the whole problem."""
    return lambda event: told(_whole(part, event))


def _whole(part: UsablePart, event: Progress) -> Progress:
    return event if event.plan is None else replace(event, plan=part.to_whole(event.plan))
