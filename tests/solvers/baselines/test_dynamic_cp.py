"""Megatron's balanced dynamic context parallelism, followed by hand."""

from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.baselines.dynamic_cp import waves
from arachne_opt.solvers.registry import cascade_solver
from tests.solvers.baselines.one_stage import one_stage


def shape(times: list[dict[int, int]], devices: int) -> list[list[tuple[int, list[int]]]]:
    return [[(g.degree, g.cascades) for g in wave] for wave in waves(times, devices)]


def test_every_sequence_gets_the_smallest_degree_that_holds_it():
    assert shape([{2: 100, 4: 60}, {1: 90, 2: 50}, {1: 90, 2: 50}], 4) == [
        [(2, [0]), (1, [1]), (1, [2])]
    ]


def test_idle_devices_widen_the_narrowest_groups():
    assert shape([{4: 100}, {1: 60, 2: 35}, {1: 60, 2: 35}], 4) == [
        [(4, [0])],
        [(2, [1]), (2, [2])],
    ]


def test_a_group_is_widened_only_to_a_degree_that_it_has():
    assert shape([{1: 60, 4: 20}], 3) == [[(1, [0])]]


def test_the_least_loaded_group_of_the_degree_takes_the_next():
    times = [{1: 100}, {1: 70}, {1: 40}]
    assert shape(times, 2) == [[(1, [0]), (1, [1, 2])]]


def test_the_last_sequence_of_the_busiest_group_is_put_off_where_that_evens_the_loads():
    assert shape([{2: 100}] * 3, 4) == [[(2, [0]), (2, [1])], [(2, [2])]]


def test_a_wave_ends_once_narrower_sequences_have_evened_the_loads():
    # 100 on two devices; 50 + 50 and 50 + 50 beside it even that out; the last 50 waits.
    times = [{2: 100}, *[{1: 50}] * 5]
    assert shape(times, 4)[1] == [(1, [5])]


def test_the_plan_runs_the_waves_one_after_the_other():
    problem = one_stage(4, {4: 100}, {1: 60, 2: 35}, {1: 60, 2: 35})
    assert cascade_solver("dynamic-cp").solve(problem, Limits()).objective_us == 135
