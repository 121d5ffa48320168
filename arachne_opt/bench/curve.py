"""The gap over time, from what searches reported while they ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arachne_opt.solvers.base import Result

MOMENTS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Where searches stood some time after their start.

    Args:
        plans: number of searches that had a plan by then; the gaps are over these.
        mean_gap: over the bound that was proven by then.
        mean_gap_to_final: over the bound that was proven in the end.
    """

    elapsed_s: float
    plans: int
    mean_gap: float | None
    worst_gap: float | None
    mean_gap_to_final: float | None


def standing_at(result: Result, elapsed_s: float) -> tuple[int, int] | None:
    """Makespan and proven bound of a search at a time, None before its first plan."""
    events = [e for e in result.history if e.elapsed_s <= elapsed_s]
    plans = [e.objective_us for e in events if e.objective_us is not None]
    return (min(plans), max(e.bound_us for e in events)) if plans else None


def gap_curve(results: Sequence[Result], time_limit_s: float) -> tuple[Moment, ...]:
    """Moments up to the time limit; a search that ended early keeps what it had."""
    return tuple(_moment(results, at) for at in MOMENTS_S if at <= time_limit_s)


def first_below_s(result: Result, objective_us: int) -> float | None:
    """When a search first had a plan shorter than this, None where it never had."""
    times = (
        e.elapsed_s
        for e in result.history
        if e.objective_us is not None and e.objective_us < objective_us
    )
    return next(times, None)


def _moment(results: Sequence[Result], elapsed_s: float) -> Moment:
    found = [(standing_at(result, elapsed_s), result.bound_us) for result in results]
    standing = [(at, final_us) for at, final_us in found if at is not None and at[1] > 0]
    gaps = [makespan_us / bound_us - 1 for (makespan_us, bound_us), _ in standing]
    final = [makespan_us / final_us - 1 for (makespan_us, _), final_us in standing]
    return Moment(
        elapsed_s=elapsed_s,
        plans=len(standing),
        mean_gap=_mean(gaps),
        worst_gap=max(gaps, default=None),
        mean_gap_to_final=_mean(final),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
