"""Bounds never exceed the optimum that enumeration finds."""

import random
from itertools import combinations, permutations, product

import pytest

from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import (
    area_bound,
    chain_bound,
    deadline_bound,
    lower_bound,
    pareto_picks,
)
from arachne_opt.solvers.cascade.cpsat.solver import Effort
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.proof import prove
from arachne_opt.solvers.cascade.schedule import left_shift
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import even_cluster, random_problem, simple_task, two_stage


def optimum_us(digest: Digest) -> int:
    """The best makespan over all orders, modes and groups."""
    groups = {
        t.index: [
            group
            for k in {m.degree for m in t.modes}
            for group in combinations(range(digest.device_count), k)
            if len({digest.kind_of[d] for d in group}) == 1
            and t.mode(k, digest.kind_of[group[0]]) is not None
        ]
        for t in digest.tasks
    }
    best = 1 << 62
    for order in permutations(range(len(digest.tasks))):
        place = {i: at for at, i in enumerate(order)}
        if any(place[p] > place[t.index] for t in digest.tasks for p in t.predecessors):
            continue
        for chosen in product(*(groups[i] for i in order)):
            runs = list(zip(order, chosen, strict=True))
            best = min(best, left_shift(digest, runs).makespan_us)
    return best


def tiny(seed: int) -> CascadeProblem:
    """Up to 3 tasks on up to 4 devices of one or two nodes."""
    rng = random.Random(seed)
    nodes, devices = rng.choice(((1, 3), (2, 2), (2, 1), (1, 2)))

    def line(degrees: tuple[int, ...]) -> dict[int, int]:
        most = nodes * devices
        fitting = [k for k in degrees if k <= most] or [1]
        return {k: rng.randint(300, 900) // k + rng.randint(1, 200) for k in fitting}

    size = rng.choice((0, 0, 40_000_000))
    rows = [two_stage("a", line((1, 2)), line((1, 2, 4)), input_bytes=size)]
    rows += [Cascade(id="b", tasks=(simple_task("denoise", line((2, 3))),))]
    cluster = even_cluster(nodes, devices)
    return CascadeProblem(name=f"tiny{seed}", cluster=cluster, cascades=tuple(rows))


@pytest.mark.parametrize("seed", range(12))
def test_every_bound_holds_and_the_solver_reaches_the_optimum(seed):
    problem = tiny(seed)
    digest = Digest(problem)
    best = optimum_us(digest)
    assert lower_bound(digest) <= best
    for step in prove(
        digest, lower_bound(digest), lambda: best + 1, lambda: Effort(seconds=5, seed=0)
    ):
        assert step.bound_us <= best
    result = cascade_solver().solve(problem, Limits(time_limit_s=0.5, workers=1))
    assert result.bound_us <= best <= result.objective_us
    if not digest.has_handoff:
        assert result.objective_us == best


def test_the_deadline_bound_is_never_below_area_and_chain():
    for seed in range(30):
        digest = Digest(random_problem(seed, restricted=False))
        ones = [1] * len(digest.kind_names)
        deadline = deadline_bound(digest, ones)
        assert deadline >= area_bound(digest, ones)
        assert deadline >= chain_bound(digest)
        assert lower_bound(digest) >= deadline


def test_the_deadline_bound_by_hand():
    """Degree 1 has less area (100), but 100 is no makespan when degree 2 has to help out.

    Two tasks on 2 devices: both at degree 1 fit side by side in 100; with three, one waits or all
    run at degree 2 in 60 each: least T with 3 * 100 <= 2 T is 150.
    """
    rows = tuple(
        Cascade(id=f"c{i}", tasks=(simple_task("denoise", {1: 100, 2: 60}),)) for i in range(3)
    )
    digest = Digest(CascadeProblem(name="h", cluster=even_cluster(1, 2), cascades=rows))
    assert deadline_bound(digest, [1]) == 150
    two = Digest(CascadeProblem(name="h", cluster=even_cluster(1, 2), cascades=rows[:2]))
    assert deadline_bound(two, [1]) == 100


def test_picks_rise_in_chain_and_fall_in_cost():
    for seed in range(20):
        digest = Digest(random_problem(seed, restricted=False))
        for row in digest.cascades:
            picks = pareto_picks(digest, row, [1] * len(digest.kind_names))
            chains = [p.chain_us for p in picks]
            costs = [p.cost for p in picks]
            assert chains == sorted(set(chains))
            assert costs == sorted(set(costs), reverse=True)


def test_coarse_time_never_lifts_a_bound_above_a_known_plan():
    for seed in range(40, 52):
        digest = Digest(random_problem(seed, max_cascades=4, restricted=False))
        plan = cascade_solver("list").solve(digest.problem, Limits())
        makespan = plan.objective_us
        for step in prove(digest, 1, lambda m=makespan: m + 1, lambda: Effort(seconds=0.3, seed=0)):
            assert step.bound_us <= makespan
