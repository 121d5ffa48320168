"""FlexSP's formulation on problems whose optimum is found by hand."""

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.registry import cascade_solver
from tests.solvers.baselines.one_stage import one_stage
from tests.strategies import even_cluster, two_stage


def makespan_us(problem: CascadeProblem) -> int | None:
    return cascade_solver("flex-sp-milp").solve(problem, Limits()).objective_us


def test_a_group_works_off_several_cascades():
    # Two groups of one: 200 and 100. One group of two: 3 * 70.
    assert makespan_us(one_stage(2, *[{1: 100, 2: 70}] * 3)) == 200


def test_one_wide_group_is_taken_where_it_is_faster():
    # Two groups of one: 200. One group of two: 3 * 60.
    assert makespan_us(one_stage(2, *[{1: 100, 2: 60}] * 3)) == 180


def test_groups_differ_in_degree():
    # The long one on two devices, the short ones beside it on one each.
    long, short = {1: 900, 2: 500, 4: 300}, {1: 400, 2: 300}
    assert makespan_us(one_stage(4, long, short, short)) == 500


def test_no_device_is_shared_over_time():
    """Sharing would end at 300 + 100; fixed groups must split the devices for good."""
    long, short = {2: 700, 4: 300}, {1: 100, 2: 60}
    assert makespan_us(one_stage(4, long, *[short] * 4)) == 700


def test_both_tasks_run_on_the_group_of_the_cascade():
    cascades = (two_stage("a", {1: 50}, {2: 200}), two_stage("b", {1: 50, 2: 30}, {2: 200}))
    problem = CascadeProblem(name="two", cluster=even_cluster(devices=2), cascades=cascades)
    assert makespan_us(problem) == 50 + 200 + 30 + 200


def test_a_time_limit_without_a_solution_gives_no_plan():
    rows = [{k: (37 * i % 101 + 50) * 8 // k for k in (1, 2, 4, 8)} for i in range(60)]
    limits = Limits(time_limit_s=1e-6)
    result = cascade_solver("flex-sp-milp").solve(one_stage(8, *rows), limits)
    assert result.status is Status.NO_PLAN
