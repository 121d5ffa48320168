"""Activations computed again, task by task, where memory asks for it."""

from dataclasses import replace

import pytest

from arachne_opt.cascade.check import Fault, check_plan
from arachne_opt.cascade.plan import (
    PLAN_FORMAT,
    RECOMPUTE_FORMAT,
    CascadePlan,
    from_canonical,
    plan_from_json,
    to_canonical,
)
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.cascade.simulate import simulate
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.registry import SEARCHES, cascade_solver
from tests.strategies import FAST, GIB, even_cluster, random_problem, renumber, simple_task

SECOND = 1_000_000


def denoise(*rows: tuple[int, int, int, bool], latents: int = 0, after=()) -> Task:
    """Options as degree, seconds, GiB and whether activations are computed again."""
    options = tuple(
        Option(degree=k, duration_us=s * SECOND, memory_bytes=g * GIB, recompute=again)
        for k, s, g, again in rows
    )
    return Task(name="denoise", options=options, predecessors=after, input_bytes=latents)


def alone(*rows: tuple[int, int, int, bool], devices: int = 2) -> CascadeProblem:
    """One cached clip on devices of 80 GiB."""
    cascade = Cascade(id="a", tasks=(denoise(*rows),))
    return CascadeProblem(name="alone", cluster=even_cluster(1, devices), cascades=(cascade,))


def pair(*rows: tuple[int, int, int, bool]) -> CascadeProblem:
    """Two cascades on two devices; encoding takes 10 s and leaves 20 GiB on one of them."""
    encode = simple_task("encode", {1: 10 * SECOND}, memory_bytes=10 * GIB)
    last = denoise(*rows, latents=20 * GIB, after=(0,))
    return CascadeProblem(
        name="pair",
        cluster=even_cluster(1, 2),
        cascades=tuple(Cascade(id=name, tasks=(encode, last)) for name in "ab"),
        resident_bytes=((FAST.name, 5 * GIB),),
    )


def solved(problem: CascadeProblem, name: str = "portfolio") -> CascadePlan:
    result = cascade_solver(name).solve(problem, Limits(time_limit_s=1))
    verify(problem, result.plan, result.objective_us)
    assert result.bound_us <= result.objective_us
    return result.plan


@pytest.mark.parametrize("name", SEARCHES)
def test_activations_are_kept_where_they_fit(name) -> None:
    plan = solved(alone((1, 100, 70, False), (1, 130, 30, True)), name)
    assert plan.makespan_us == 100 * SECOND
    assert not plan.placements[0].recompute


@pytest.mark.parametrize("name", SEARCHES)
def test_and_computed_again_where_they_do_not(name) -> None:
    plan = solved(alone((1, 100, 90, False), (1, 130, 30, True)), name)
    assert plan.makespan_us == 130 * SECOND
    assert plan.placements[0].recompute


def test_the_degree_is_weighed_against_computing_again() -> None:
    rows = (1, 200, 90, False), (1, 260, 30, True), (2, 140, 45, False), (2, 182, 15, True)
    plan = solved(alone(*rows))
    assert (plan.placements[0].degree, plan.placements[0].recompute) == (2, False)
    several = tuple(replace(alone(*rows).cascades[0], id=f"c{i}") for i in range(2))
    # Two on one device each: 260 s; one after the other on two: 280 s.
    plan = solved(replace(alone(*rows), cascades=several))
    assert [(p.degree, p.recompute) for p in plan.placements] == [(1, True)] * 2


@pytest.mark.parametrize("name", SEARCHES)
def test_only_the_task_that_runs_while_latents_wait_computes_again(name) -> None:
    """On both devices one after the other: b's latents wait while a runs, nothing while b runs."""
    problem = pair((2, 100, 70, False), (2, 130, 30, True))
    plan = solved(problem, name)
    flags = [p.recompute for p in plan.placements if p.task == 1]
    assert flags == [True, False]
    moved = problem.cluster.handoff_us(20 * GIB, (0,), (0, 1))
    assert plan.makespan_us == (10 + 130 + 100) * SECOND + moved
    assert max(simulate(problem, plan).peak_bytes) <= 80 * GIB


def test_the_checker_knows_which_way_was_planned() -> None:
    problem = pair((2, 100, 70, False), (2, 130, 30, True))
    plan = solved(problem)
    kept = tuple(replace(p, recompute=False) for p in plan.placements)
    (violation,) = check_plan(problem, replace(plan, placements=kept))
    assert violation.code is Fault.MEMORY_OVER_TIME
    again = tuple(replace(p, recompute=p.task == 1) for p in plan.placements)
    (violation,) = check_plan(problem, replace(plan, placements=again))
    assert violation.code is Fault.TOO_SHORT
    wrong = tuple(replace(p, recompute=p.task == 0) for p in plan.placements)
    faults = {violation.code for violation in check_plan(problem, replace(plan, placements=wrong))}
    assert Fault.NO_SUCH_OPTION in faults
    with pytest.raises(InputError, match="no option of degree 1 on Fast-80 that computes"):
        simulate(problem, replace(plan, placements=wrong))


def test_plans_and_problems_survive_json_and_renumbering() -> None:
    problem = pair((2, 100, 70, False), (2, 130, 30, True))
    plan = solved(problem)
    value = plan.to_json(problem)
    assert value["format"] == RECOMPUTE_FORMAT
    assert plan_from_json(value, problem) == plan
    assert problem_from_json(problem_to_json(problem)) == problem
    assert from_canonical(to_canonical(plan, problem), problem) == plan
    with pytest.raises(InputError, match="recompute is true or false, not 1"):
        plan_from_json({**value, "runs": [{**value["runs"][0], "recompute": 1}]}, problem)


def test_without_such_options_nothing_changes_its_form_or_key() -> None:
    problem = alone((1, 100, 70, False))
    assert solved(problem).to_json(problem)["format"] == PLAN_FORMAT
    assert "recompute" not in str(problem_to_json(problem))
    assert problem.cascades[0].tasks[0].canonical()[1] == [[1, "", 100 * SECOND, 70 * GIB]]
    other = alone((1, 100, 70, False), (1, 130, 30, True))
    assert other.fingerprint() != problem.fingerprint()
    assert other.fingerprint() == renumber(other, 1).fingerprint()


def test_two_ways_to_compute_again_at_one_degree_are_refused() -> None:
    with pytest.raises(InputError, match="two options of degree 1"):
        alone((1, 100, 70, True), (1, 130, 30, True))


def test_every_random_problem_with_both_ways_is_solved_legally() -> None:
    seen = 0
    for seed in range(150):
        problem = random_problem(seed, max_cascades=4)
        options = [o for _, _, task in problem.tasks() for o in task.options]
        if not any(option.recompute for option in options):
            continue
        seen += 1
        result = cascade_solver("list").solve(problem, Limits(time_limit_s=0.2))
        if result.plan is None:
            assert result.status in (Status.INFEASIBLE, Status.NO_PLAN)
            assert problem.resident_bytes
            continue
        verify(problem, result.plan, result.objective_us)
    assert seen > 15
