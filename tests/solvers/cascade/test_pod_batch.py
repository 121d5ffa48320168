"""The batched search of pods: it decodes as the decoder of single states does."""

from dataclasses import replace

import numpy as np
import pytest

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.cascade.bounds import lower_bound
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.pod_batch import PodBatch
from arachne_opt.solvers.cascade.pod_solver import PodSolver, Wanted, part_of, state_of
from arachne_opt.solvers.cascade.pod_tables import PodTables
from arachne_opt.solvers.cascade.schedule import left_shift, to_plan
from arachne_opt.solvers.registry import cascade_solver
from tests.strategies import even_cluster, random_problem, two_stage


def patiently(_placed):
    return False


def left_shift_of(digest, pod):
    """Makespan of a pod's runs among all devices, of its cascades alone."""
    part = part_of(digest, *pod.site)
    tasks = {i: k for k, i in enumerate(i for c in pod.site.cascades for i in digest.cascades[c])}
    return left_shift(part, [(tasks[i], devices) for i, devices in pod.runs]).makespan_us


def searchable(seed):
    """A random problem whose groups all have a site: types, hand-offs and stages vary."""
    while True:
        digest = Digest(random_problem(seed, restricted=False))
        tables = PodTables(digest, len(digest.cascades))
        if all(map(tables.has_room, range(tables.shapes))):
            return digest, tables
        seed += 1000


@pytest.mark.parametrize("seed", range(25))
def test_a_batch_decodes_as_the_decoder_does(seed):
    digest, tables = searchable(seed)
    shapes = list(range(len(digest.cascades)))
    batch = PodBatch(tables, [shapes, shapes], 4, np.random.default_rng(seed))
    for found in batch.anneal(lower_bound(digest), 3, patiently):
        decoder = FastDecoder(digest)
        state = state_of(decoder, tables, shapes, found.chain)
        ends, _ = decoder.decode(state)
        rounding = tables.tick_us * 2 * len(digest.tasks)
        assert max(ends) <= found.makespan_us <= max(ends) + rounding


@pytest.mark.parametrize("seed", range(12))
def test_pods_are_legal_plans_with_the_makespan_they_claim(seed):
    digest, _ = searchable(100 + seed)
    solver = PodSolver(digest, lower_bound(digest), seed)
    site = solver.site(range(len(digest.nodes)), range(len(digest.cascades)))
    (pod,) = solver.solve([Wanted(site)], patiently)
    schedule = left_shift(digest, pod.runs)
    assert schedule.makespan_us == pod.makespan_us >= lower_bound(digest)
    assert check_plan(digest.problem, to_plan(digest, schedule)) == ()


def test_a_batch_finds_what_the_whole_search_proves_optimal():
    rows = tuple(
        two_stage(f"c{i}", {1: 900, 2: 500}, {4: 3100 + 10 * i, 8: 1700}) for i in range(4)
    )
    problem = CascadeProblem(name="small", cluster=even_cluster(2, 8), cascades=rows)
    best = cascade_solver().solve(problem, Limits(time_limit_s=5, deterministic=True))
    digest = Digest(problem)
    solver = PodSolver(digest, lower_bound(digest), 0)
    (pod,) = solver.solve([Wanted(solver.site((0, 1), (0, 1, 2, 3)))], patiently)
    assert pod.makespan_us == best.objective_us


def test_groups_over_nodes_need_no_equal_shares():
    """Degree 20 fits three nodes of 8 as 7, 7 and 6."""
    rows = (two_stage("c", {1: 100}, {10: 9000, 20: 4000}),)
    problem = CascadeProblem(name="wide", cluster=even_cluster(3, 8), cascades=rows)
    digest = Digest(problem)
    solver = PodSolver(digest, lower_bound(digest), 0)
    (pod,) = solver.solve([Wanted(solver.site((0, 1, 2), (0,)))], patiently)
    assert sorted(len(devices) for _, devices in pod.runs) == [1, 20]
    assert pod.makespan_us == lower_bound(digest)
    schedule = left_shift(digest, pod.runs)
    assert check_plan(problem, to_plan(digest, schedule)) == ()


def test_a_search_goes_on_from_a_near_pod():
    rows = tuple(
        two_stage(f"c{i}", {1: 900, 2: 500}, {4: 3100 + 100 * i, 8: 1700}) for i in range(5)
    )
    problem = CascadeProblem(name="small", cluster=even_cluster(4, 8), cascades=rows)
    digest = Digest(problem)
    solver = PodSolver(digest, lower_bound(digest), 0)
    (near,) = solver.solve([Wanted(solver.site((0, 1), (0, 1, 2, 3)))], patiently)
    # Stopped before its first step: all there is comes from the near pod.
    want = Wanted(solver.site((2, 3), (0, 1, 2, 4)), near=near)
    (pod,) = solver.solve([want], lambda _placed: True)
    assert pod.makespan_us <= near.makespan_us + 400


@pytest.mark.parametrize("cascades", [(0, 1, 3), (0, 1, 2, 3, 4), (0, 4, 5, 6)])
def test_a_near_pod_may_have_other_numbers_of_cascades_and_tasks(cascades):
    """Latents of some are cached: these have no task to encode."""
    encoded = [two_stage(f"c{i}", {1: 900}, {4: 3100 + i, 8: 1700}) for i in range(7)]
    cached = [replace(c, tasks=(replace(c.tasks[1], predecessors=()),)) for c in encoded]
    rows = tuple(pair[i % 2] for i, pair in enumerate(zip(encoded, cached, strict=True)))
    problem = CascadeProblem(name="cached", cluster=even_cluster(2, 8), cascades=rows)
    digest = Digest(problem)
    solver = PodSolver(digest, lower_bound(digest), 0)
    (near,) = solver.solve([Wanted(solver.site((0, 1), (0, 1, 2, 3)))], patiently)
    (pod,) = solver.solve([Wanted(solver.site((0, 1), cascades), near=near)], patiently)
    assert {digest.tasks[i].cascade for i, _ in pod.runs} == {*cascades}
    assert len(pod.runs) == sum(len(digest.cascades[c]) for c in cascades)
    assert left_shift_of(digest, pod) == pod.makespan_us


def test_times_beyond_32_bits_are_rounded_up_to_ticks():
    hour_us = 3_600_000_000
    rows = tuple(two_stage(f"c{i}", {1: hour_us}, {4: 9 * hour_us + i}) for i in range(6))
    problem = CascadeProblem(name="long", cluster=even_cluster(2, 8), cascades=rows)
    digest = Digest(problem)
    assert PodTables(digest, 6).tick_us > 1
    solver = PodSolver(digest, lower_bound(digest), 0)
    (pod,) = solver.solve([Wanted(solver.site((0, 1), range(6)))], patiently)
    assert pod.makespan_us == left_shift(digest, pod.runs).makespan_us
    assert pod.makespan_us >= 19 * hour_us
