"""The parts of the search: schedules, placement, decoder, alignment, neighbourhoods, tidying."""

from array import array

import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.solvers.cascade.cpsat.alignment import Timed, aligned_runs
from arachne_opt.solvers.cascade.cpsat.solver import Effort
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.neighbourhood import Neighbourhood
from arachne_opt.solvers.cascade.placement import best_group
from arachne_opt.solvers.cascade.polish import polish
from arachne_opt.solvers.cascade.schedule import (
    from_plan,
    in_start_order,
    left_shift,
    to_plan,
)
from arachne_opt.solvers.cascade.walks.choice import blank
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.walker import Walks
from arachne_opt.units import PPM
from tests.strategies import even_cluster, random_problem, seeded_plan, simple_task, two_stage


def digest_of(*cascades: Cascade, nodes: int, devices: int) -> Digest:
    cluster = even_cluster(nodes, devices)
    return Digest(CascadeProblem(name="hand", cluster=cluster, cascades=cascades))


def single(name: str, durations_us: dict[int, int]) -> Cascade:
    return Cascade(id=name, tasks=(simple_task("denoise", durations_us),))


@pytest.mark.parametrize("seed", range(15))
def test_a_left_shifted_plan_survives_the_way_through_a_schedule(seed):
    problem = random_problem(seed, restricted=False)
    digest = Digest(problem)
    schedule = from_plan(digest, seeded_plan(problem, seed))
    assert schedule is not None
    plan = to_plan(digest, in_start_order(digest, schedule))
    assert check_plan(problem, plan) == ()
    again = from_plan(digest, plan)
    assert again is not None
    assert again.ends_us == in_start_order(digest, schedule).ends_us


def test_an_incomplete_plan_is_no_schedule():
    problem = random_problem(3)
    plan = seeded_plan(problem, 1)
    short = type(plan)(problem_name=plan.problem_name, placements=plan.placements[:-1])
    assert from_plan(Digest(problem), short) is None


def test_a_group_is_put_where_it_ends_first_and_wastes_least():
    digest = digest_of(single("a", {2: 100}), nodes=2, devices=4)
    mode = digest.tasks[0].modes[0]
    free = [0, 0, 50, 50, 40, 40, 90, 90]
    assert best_group(digest, free, 0, mode).devices == (0, 1)
    assert best_group(digest, free, 60, mode).devices == (2, 3)


def test_a_wide_group_aligns_its_nic_groups():
    digest = digest_of(single("a", {4: 100}), nodes=2, devices=4)
    mode = digest.tasks[0].modes[0]
    free = [900, 900, 0, 0, 900, 0, 0, 0]
    choice = best_group(digest, free, 0, mode)
    assert choice.devices == (2, 3, 6, 7)
    assert digest.penalty_ppm(choice.devices) == digest.mildest_ppm


def test_nic_groups_are_fitted_for_all_tasks_at_once():
    """Two tasks hold one NIC group each; a third needs equal NIC groups on both nodes after them.

    Taken greedily the first two would sit on the first NIC group of node 0 and the first of node
    1 and leave a fit by luck only when they end together; here all three run at once.
    """
    digest = digest_of(
        single("a", {2: 50}), single("b", {2: 50}), single("wide", {4: 50}), nodes=2, devices=4
    )
    items = [
        Timed(0, ((0, 2),), 0, 50),
        Timed(1, ((1, 2),), 0, 50),
        Timed(2, ((0, 2), (1, 2)), 0, 53),
    ]
    runs = aligned_runs(digest, items)
    assert runs is not None
    assert digest.penalty_ppm(runs[2][1]) == digest.mildest_ppm
    assert sorted(d for _, group in runs for d in group) == list(range(8))


def test_no_fit_is_made_up_where_none_exists():
    digest = digest_of(single("a", {3: 50}), single("wide", {2: 50}), nodes=2, devices=4)
    # One device of node 0 is left, and all of node 1 is taken by the rest of an impossible demand.
    items = [Timed(0, ((0, 3),), 0, 50), Timed(1, ((0, 2),), 0, 50)]
    assert aligned_runs(digest, items) is None


def test_a_penalty_is_paid_for_groups_over_nodes_only():
    digest = digest_of(single("a", {2: 50}), nodes=2, devices=4)
    assert digest.penalty_ppm((0, 1)) == PPM
    assert digest.penalty_ppm((0, 4)) == digest.mildest_ppm
    assert digest.penalty_ppm((0, 6)) > digest.mildest_ppm


def test_walks_find_the_optimum_that_list_scheduling_misses():
    """Durations 7, 5, 4, 4 and 4 on two single devices: 12 is best, longest first gives 13."""
    rows = [single(f"c{i}", {1: us}) for i, us in enumerate((700, 500, 400, 400, 400))]
    walks = Walks(digest_of(*rows, nodes=1, devices=2))
    walker = walks.walker(0)
    assert walker.begin(blank(5)._replace(priority=array("q", [5, 4, 3, 2, 1])), ANY_US) == 1300
    walker.walk(200, 0.01)
    assert walker.best.makespan_us == walks.schedule(walker.best).makespan_us == 1200


def test_an_exact_neighbourhood_improves_a_poor_schedule():
    rows = [two_stage(f"c{i}", {2: 400, 4: 250}, {4: 2000, 8: 1100}) for i in range(4)]
    digest = digest_of(*rows, nodes=2, devices=8)
    poor = left_shift(digest, [(i, tuple(range(8))[: 4 + 4 * (i % 2)]) for i in range(8)])
    search = Neighbourhood(FastDecoder(digest), 0)
    best = poor
    for _ in range(8):
        best = search.improve(best, 1, Effort(seconds=1, seed=0)) or best
    assert best.makespan_us < poor.makespan_us * 0.75
    assert check_plan(digest.problem, to_plan(digest, best)) == ()


def test_tidying_keeps_the_makespan_and_gathers_groups_on_one_node():
    digest = digest_of(single("a", {4: 100}), single("b", {8: 300}), nodes=3, devices=8)
    spread = left_shift(digest, [(1, tuple(range(8))), (0, (8, 9, 16, 17))])
    tidy = polish(digest, spread, lambda: False)
    assert tidy.makespan_us == spread.makespan_us
    assert tidy.cross_node == 0
    assert sum(tidy.ends_us) < sum(spread.ends_us)
