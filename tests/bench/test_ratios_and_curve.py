"""Figures of comparisons, from results made by hand."""

import pytest

from arachne_opt.bench.curve import first_below_s, gap_curve, standing_at
from arachne_opt.bench.ratios import ratios_of
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.solvers.base import Progress, Result, Status


def search(*events: tuple[float, int | None, int]) -> Result:
    """A search that reported (elapsed, makespan, bound) and ended with the last of them."""
    history = tuple(
        Progress(elapsed_s=at, objective_us=makespan, bound_us=bound, source="test")
        for at, makespan, bound in events
    )
    _, makespan, bound = events[-1]
    assert makespan is not None
    placement = Placement(cascade=0, task=0, devices=(0,), start_us=0, end_us=makespan)
    return Result(
        status=Status.FEASIBLE,
        plan=CascadePlan(problem_name="x", placements=(placement,)),
        objective_us=makespan,
        bound_us=bound,
        solver="test",
        seed=0,
        wall_s=events[-1][0],
        history=history,
    )


def test_a_search_stands_where_its_last_report_left_it() -> None:
    result = search((0.0, None, 80), (0.2, 120, 80), (0.7, 110, 80), (0.9, 110, 100))
    assert standing_at(result, 0.1) is None
    assert standing_at(result, 0.2) == (120, 80)
    assert standing_at(result, 0.8) == (110, 80)
    assert standing_at(result, 50) == (110, 100)


def test_the_curve_takes_the_mean_over_the_bounds_of_the_time_and_the_final_ones() -> None:
    early = search((0.05, 150, 100))
    late = search((0.3, 120, 80), (0.9, 110, 100))
    at = {m.elapsed_s: m for m in gap_curve([early, late], time_limit_s=2)}
    assert list(at) == [0.1, 0.5, 1, 2]
    assert (at[0.1].plans, at[0.1].mean_gap) == (1, 0.5)
    assert (at[0.5].plans, at[0.5].mean_gap, at[0.5].worst_gap) == (2, 0.5, 0.5)
    assert at[0.5].mean_gap_to_final == pytest.approx((0.5 + 0.2) / 2)
    assert at[1].mean_gap == pytest.approx((0.5 + 0.1) / 2)
    assert at[2] == type(at[2])(**{**_fields(at[1]), "elapsed_s": 2.0})


def test_before_any_plan_there_is_no_gap() -> None:
    (moment,) = gap_curve([search((0.3, 120, 80))], time_limit_s=0.1)
    assert (moment.plans, moment.mean_gap, moment.worst_gap) == (0, None, None)


def test_the_first_plan_below_a_makespan_counts() -> None:
    result = search((0.1, 120, 80), (0.4, 100, 80), (0.6, 90, 80))
    assert first_below_s(result, 110) == 0.4
    assert first_below_s(result, 100) == 0.6
    assert first_below_s(result, 90) is None


def test_ratios_count_wins_ties_and_losses() -> None:
    ratios = ratios_of([(50, 100), (200, 100), (100_050, 100_000), (99_950, 100_000)])
    assert ratios is not None
    assert (ratios.wins, ratios.ties, ratios.losses) == (1, 2, 1)
    assert (ratios.best, ratios.worst, ratios.count) == (0.5, 2.0, 4)
    assert ratios.mean == pytest.approx(1.0, abs=1e-6)
    assert ratios_of([]) is None


def _fields(moment: object) -> dict[str, object]:
    return {name: getattr(moment, name) for name in type(moment).__slots__}
