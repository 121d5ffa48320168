"""Schedules as states of the local search."""

from __future__ import annotations

import pytest

from arachne_opt.solvers.cascade.decoder import FastDecoder, State
from arachne_opt.solvers.cascade.digest import Digest, binding_limits
from arachne_opt.solvers.cascade.schedule import Schedule, from_plan, in_start_order
from tests.strategies import random_problem, seeded_plan


def _random_schedule(seed: int) -> tuple[FastDecoder, Schedule] | None:
    """A schedule whose modes the decoder all keeps; None where a seed has none."""
    problem = random_problem(seed, restricted=False)
    if binding_limits(problem):
        return None
    decoder = FastDecoder(Digest(problem))
    schedule = from_plan(decoder.digest, seeded_plan(problem, seed))
    assert schedule is not None
    state = decoder.state_of(schedule)
    kept = all(
        decoder.modes[i][state.picks[i]].degree == len(devices) for i, devices in schedule.runs
    )
    return (decoder, in_start_order(decoder.digest, schedule)) if kept else None


def test_the_state_of_a_schedule_decodes_to_it_with_groups_over_nodes_as_well() -> None:
    spread = 0
    for seed in range(150):
        made = _random_schedule(seed)
        if made is None:
            continue
        decoder, schedule = made
        ends, where = decoder.decode(decoder.state_of(schedule))
        # The decoder charges the mildest penalty.
        assert max(ends) <= schedule.makespan_us
        nodes = decoder.digest.node_of
        for i, devices in schedule.runs:
            assert sorted(n for n, count in where[i] for _ in range(count)) == sorted(
                nodes[d] for d in devices
            )
            spread += len(where[i]) > 1
    assert spread > 20


@pytest.mark.parametrize("seed", range(10))
def test_a_place_for_another_degree_is_only_a_suggestion(seed: int) -> None:
    made = _random_schedule(seed)
    if made is None:
        pytest.skip("the plan of this seed uses modes that are never of use")
    decoder, schedule = made
    state = decoder.state_of(schedule)
    for pick in range(max(len(lines) for lines in decoder.modes)):
        picks = [min(pick, len(lines) - 1) for lines in decoder.modes]
        _, where = decoder.decode(State(state.order, picks, state.sites))
        for i, place in enumerate(where):
            assert sum(count for _, count in place) == decoder.modes[i][picks[i]].degree
