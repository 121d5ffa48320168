"""Schedules from modes and nodes alone."""

from __future__ import annotations

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest, Where, binding_limits
from arachne_opt.solvers.cascade.list_schedule import list_schedules
from arachne_opt.solvers.cascade.schedule import Schedule, from_plan, in_start_order, to_plan
from tests.strategies import even_cluster, random_problem, seeded_plan, two_stage


def _random_schedule(seed: int) -> tuple[FastDecoder, Schedule]:
    """A schedule whose modes the decoder all keeps."""
    problem = random_problem(seed, restricted=False)
    if binding_limits(problem):
        pytest.skip("this seed has no plan")
    decoder = FastDecoder(Digest(problem))
    schedule = from_plan(decoder.digest, seeded_plan(problem, seed))
    assert schedule is not None
    picks = decoder.picks_of(schedule)
    if any(decoder.modes[i][picks[i]].degree != len(devices) for i, devices in schedule.runs):
        pytest.skip("the plan of this seed uses modes that are never of use")
    return decoder, in_start_order(decoder.digest, schedule)


def _where(decoder: FastDecoder, schedule: Schedule) -> list[Where]:
    places: list[Where] = [()] * len(schedule.runs)
    for i, devices in schedule.runs:
        nodes = [decoder.digest.node_of[d] for d in devices]
        places[i] = tuple((n, nodes.count(n)) for n in sorted(set(nodes)))
    return places


@pytest.mark.parametrize("seed", range(60))
def test_nodes_of_a_schedule_give_one_that_is_legal_and_hardly_earlier(seed: int) -> None:
    decoder, schedule = _random_schedule(seed)
    order, picks = [i for i, _ in schedule.runs], decoder.picks_of(schedule)
    where = _where(decoder, schedule)
    # The mildest penalty, and as many devices of the producers as can be.
    assert max(decoder.ends_us(order, picks, where)) <= schedule.makespan_us
    made = decoder.realise(order, picks, where)
    assert _where(decoder, made) == where
    digest = decoder.digest
    assert check_plan(digest.problem, to_plan(digest, made)) == ()


def test_on_one_node_ends_are_exact() -> None:
    cascades = tuple(two_stage(f"c{i}", {1: 40, 2: 25}, {2: 130, 4: 70}) for i in range(3))
    digest = Digest(CascadeProblem(name="one", cluster=even_cluster(1, 4), cascades=cascades))
    decoder = FastDecoder(digest)
    for schedule in list_schedules(digest, lower_bound(digest)):
        order, picks = [i for i, _ in schedule.runs], decoder.picks_of(schedule)
        ends = decoder.ends_us(order, picks, _where(decoder, schedule))
        assert max(ends) == schedule.makespan_us
