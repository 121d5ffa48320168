"""One degree for all: the static frameworks.

Megatron-LM trains with one sequence-parallel degree, here the devices over the cascades (the rule
of the public artifact, woshipapa/Arachne_artifact). Open-Sora's bucketed data parallelism takes the
smallest degree that holds every micro-batch and deals the micro-batches to the groups in order.
"""

from __future__ import annotations

import time

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.baselines.deal import finish, neighbour_groups, runs_on
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Run, left_shift


def megatron_uniform(problem: CascadeProblem, limits: Limits) -> Result:
    """Every task at devices / cascades; no plan where that is no degree of all denoise tasks."""
    begin_s, digest = time.perf_counter(), Digest(problem)
    degree, rest = divmod(digest.device_count, len(digest.cascades))
    runs = None if rest or degree < 1 else uniform_runs(digest, degree)
    return finish(digest, runs, limits, "megatron-uniform", begin_s)


def bucketed_data_parallel(problem: CascadeProblem, limits: Limits) -> Result:
    """Every task at the smallest degree that every cascade can run."""
    begin_s, digest = time.perf_counter(), Digest(problem)
    found = (uniform_runs(digest, degree) for degree in _degrees(digest))
    runs = next((runs for runs in found if runs is not None), None)
    return finish(digest, runs, limits, "bucketed-dp", begin_s)


def best_uniform(problem: CascadeProblem, limits: Limits) -> Result:
    """The uniform degree with the shortest makespan: the best that a static framework can do."""
    begin_s, digest = time.perf_counter(), Digest(problem)
    found = [uniform_runs(digest, degree) for degree in _degrees(digest)]
    legal = [runs for runs in found if runs is not None]
    best = min(legal, key=lambda runs: left_shift(digest, runs).key, default=None)
    return finish(digest, best, limits, "best-uniform", begin_s)


def uniform_runs(digest: Digest, degree: int) -> list[Run] | None:
    """Cascades dealt in order to groups of one degree; None where one cannot run at it.

    The last task of a cascade must have the degree; earlier ones, such as an encode that scales
    less far, take the largest that they have below it.
    """
    groups = neighbour_groups(digest, degree)
    if not groups:
        return None
    runs: list[Run] = []
    for cascade in range(len(digest.cascades)):
        on_group = runs_on(digest, cascade, groups[cascade % len(groups)])
        if on_group is None or len(on_group[-1][1]) != degree:
            return None
        runs += on_group
    return runs


def _degrees(digest: Digest) -> list[int]:
    return sorted({mode.degree for task in digest.tasks for mode in task.modes})
