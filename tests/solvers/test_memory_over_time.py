"""Memory over time: by hand, in the simulation, and kept by every search."""

import random
from dataclasses import replace

import pytest

from arachne_opt.cascade.check import Fault, check_plan
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem, Option, Task
from arachne_opt.cascade.problem_json import problem_from_json, problem_to_json
from arachne_opt.cascade.simulate import simulate
from arachne_opt.cascade.verify import verify
from arachne_opt.errors import InputError
from arachne_opt.solvers.base import Limits, Status
from arachne_opt.solvers.cascade.quick import quick_plan
from arachne_opt.solvers.cascade.room import Room
from arachne_opt.solvers.registry import SEARCHES, cascade_solver, cascade_solver_names
from tests.strategies import FAST, GIB, even_cluster, random_problem, simple_task

SECOND = 1_000_000
RESIDENT = ((FAST.name, 5 * GIB),)


def cascade(name: str, denoise: dict[int, tuple[int, int]], latents: int = 20 * GIB) -> Cascade:
    """Encode takes 10 s on one device; denoise its seconds and GiB by degree."""
    options = tuple(
        Option(degree=k, duration_us=s * SECOND, memory_bytes=g * GIB)
        for k, (s, g) in denoise.items()
    )
    encode = simple_task("encode", {1: 10 * SECOND}, memory_bytes=10 * GIB)
    last = Task(name="denoise", options=options, predecessors=(0,), input_bytes=latents)
    return Cascade(id=name, tasks=(encode, last), label=name)


def pair(denoise: dict[int, tuple[int, int]], *, resident=RESIDENT) -> CascadeProblem:
    """Two such cascades on two devices of 80 GiB."""
    rows = (cascade("a", denoise), cascade("b", denoise))
    return CascadeProblem(
        name="pair", cluster=even_cluster(1, 2), cascades=rows, resident_bytes=resident
    )


def by_hand(problem: CascadeProblem) -> CascadePlan:
    """Both encode at once, then denoise on both devices one after the other."""
    moved = problem.cluster.handoff_us(20 * GIB, (0,), (0, 1))
    start = 10 * SECOND + moved
    length = problem.cascades[0].tasks[1].options[0].duration_us
    rows = (
        (0, 0, (0,), 0, 10 * SECOND),
        (1, 0, (1,), 0, 10 * SECOND),
        (0, 1, (0, 1), start, start + length),
        (1, 1, (0, 1), start + length, start + 2 * length),
    )
    return CascadePlan(
        problem_name=problem.name,
        placements=tuple(
            Placement(cascade=c, task=t, devices=d, start_us=s, end_us=e) for c, t, d, s, e in rows
        ),
    )


def test_latents_that_wait_beside_a_large_task_are_too_much() -> None:
    """Device 1 holds 20 GiB of cascade b while cascade a denoises with 70 GiB."""
    problem = pair({2: (100, 70)})
    (violation,) = check_plan(problem, by_hand(problem))
    assert violation.code is Fault.MEMORY_OVER_TIME
    assert violation.where == "device 1"
    assert "it holds 90.0 GiB: 70.0 GiB of cascade 0 (a), denoise" in violation.text
    assert "20.0 GiB of parked results; Fast-80 has 80.0 GiB" in violation.text


def test_without_resident_bytes_only_tasks_count() -> None:
    problem = pair({2: (100, 70)}, resident=())
    assert check_plan(problem, by_hand(problem)) == ()


def test_exactly_full_is_legal_and_the_simulation_reports_the_peaks() -> None:
    problem = pair({2: (100, 60)})
    assert check_plan(problem, by_hand(problem)) == ()
    assert simulate(problem, by_hand(problem)).peak_bytes == (60 * GIB, 80 * GIB)


def test_an_idle_device_holds_what_is_resident_and_what_waits() -> None:
    """Device 1 encodes b and waits: 5 GiB and 20 GiB, but 10 GiB while it encodes; 2 is unused."""
    problem = pair({1: (100, 60)})
    problem = replace(problem, cluster=even_cluster(1, 3))
    rows = (
        (0, 0, (0,), 0, 10),
        (1, 0, (1,), 0, 10),
        (0, 1, (0,), 10, 110),
        (1, 1, (0,), 111, 211),
    )
    plan = CascadePlan(
        problem_name="pair",
        placements=tuple(
            Placement(cascade=c, task=t, devices=d, start_us=s * SECOND, end_us=e * SECOND)
            for c, t, d, s, e in rows
        ),
    )
    assert check_plan(problem, plan) == ()
    assert simulate(problem, plan).peak_bytes == (60 * GIB, 25 * GIB, 5 * GIB)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_narrower_degree_makes_room(name) -> None:
    """Degree 2 would take 10 + 85 + 85 s, but does not fit beside latents; degree 1 takes 190 s."""
    problem = pair({1: (180, 50), 2: (85, 70)})
    result = cascade_solver(name).solve(problem, Limits(time_limit_s=1))
    verify(problem, result.plan, result.objective_us)
    assert result.objective_us == 190 * SECOND
    assert result.bound_us <= 190 * SECOND


@pytest.mark.parametrize("name", SEARCHES)
def test_where_nothing_can_wait_cascades_follow_one_another(name) -> None:
    """10 + 100 s for each, and the hand-off of half the latents each time."""
    problem = pair({2: (100, 70)})
    told = []
    result = cascade_solver(name).solve(problem, Limits(time_limit_s=1), on_progress=told.append)
    verify(problem, result.plan, result.objective_us)
    moved = problem.cluster.handoff_us(20 * GIB, (0,), (0, 1))
    assert result.objective_us == 2 * (110 * SECOND + moved)
    assert result.status is Status.FEASIBLE
    assert 210 * SECOND <= result.bound_us < result.objective_us
    assert all(check_plan(problem, e.plan) == () for e in told if e.plan is not None)
    assert quick_plan(problem)[0].makespan_us >= result.objective_us


def test_problems_with_room_for_everything_are_solved_as_before() -> None:
    problem = pair({1: (180, 30), 2: (85, 40)})
    assert not Room(problem).may_be_short()
    result = cascade_solver().solve(problem, Limits(time_limit_s=1))
    free = cascade_solver().solve(replace(problem, resident_bytes=()), Limits(time_limit_s=1))
    assert result.objective_us == free.objective_us
    assert result.bound_us == free.bound_us


def tight(seed: int) -> CascadeProblem:
    """A random problem whose results are so large that they may not fit beside tasks."""
    rng = random.Random(seed)
    problem = random_problem(seed, max_nodes=2, max_devices=4, restricted=False)

    def heavy(task: Task) -> Task:
        size = rng.randint(1, 30 * GIB) if task.predecessors else 0
        return replace(task, input_bytes=size)

    rows = tuple(replace(c, tasks=tuple(map(heavy, c.tasks))) for c in problem.cascades)
    resident = tuple((name, rng.randint(0, GIB)) for name in problem.cluster.device_types)
    return replace(problem, cascades=rows, resident_bytes=resident)


@pytest.mark.parametrize("name", cascade_solver_names())
def test_no_solver_parks_more_than_fits(name) -> None:
    found = 0
    for seed in range(12):
        problem = tight(seed)
        result = cascade_solver(name).solve(problem, Limits(time_limit_s=0.1, workers=1))
        if result.plan is None:
            assert result.status is Status.NO_PLAN
            continue
        found += 1
        verify(problem, result.plan, result.objective_us)
        assert result.bound_us <= result.objective_us
    assert found >= 10 or name not in SEARCHES


def test_the_solvers_account_of_memory_agrees_with_the_checkers() -> None:
    """On plans made without any thought of memory."""
    short = 0
    for seed in range(40):
        problem = tight(seed)
        free = replace(problem, resident_bytes=())
        plan = quick_plan(free)[0]
        codes = {v.code for v in check_plan(problem, plan)}
        assert codes <= {Fault.MEMORY_OVER_TIME}
        assert bool(codes) == bool(Room(problem).parked_where_short(plan))
        short += bool(codes)
    assert 5 <= short <= 35


def test_deterministic_runs_give_equal_plans() -> None:
    problem = pair({1: (180, 50), 2: (85, 70)})
    limits = Limits(time_limit_s=0.2, seed=2, deterministic=True)
    first, second = (cascade_solver().solve(problem, limits) for _ in range(2))
    assert first.plan == second.plan


def test_resident_bytes_survive_json() -> None:
    problem = pair({1: (1, 1)})
    assert problem_from_json(problem_to_json(problem)) == problem


@pytest.mark.parametrize("rows", [(("T4", 1),), ((FAST.name, -1),), ((FAST.name, 1),) * 2])
def test_resident_bytes_of_no_type_are_refused(rows) -> None:
    with pytest.raises(InputError, match="resident bytes"):
        pair({1: (1, 1)}, resident=rows)
