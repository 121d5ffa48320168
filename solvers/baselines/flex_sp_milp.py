"""FlexSP's formulation (Wang et al. 2025, «FlexSP», ASPLOS; its solver in PKU-DAIR/Hetu-Galvatron).

Which groups to make, of which degrees, and which cascades each of them works off, one after the
other, so that the slowest group ends first. Groups stand for the whole iteration: no device is
shared over time and both tasks of a cascade run on one group. FlexSP buckets sequences of about
equal length; here equal cascades form a bucket, so that nothing is rounded.

    min T   where for groups p of degree d_p, buckets s of n_s cascades, times t
    sum_p x_sp = n_s                      every cascade in one group
    sum_s t_s(d_p) x_sp <= T              the slowest group
    sum_s x_sp <= n m_p                   only in groups that are made
    sum_p d_p m_p <= N                    devices
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import MissingDependencyError
from arachne_opt.solvers.base import Limits, Result
from arachne_opt.solvers.baselines.deal import exact_runs, finish, seat, times_us
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Run
from arachne_opt.units import US_PER_S


def flex_sp_milp(problem: CascadeProblem, limits: Limits) -> Result:
    """The best plan of the formulation that HiGHS finds in time; none on mixed device types."""
    begin_s, digest = time.perf_counter(), Digest(problem)
    chosen = None
    if len(digest.kind_names) == 1:
        chosen = _solve(_buckets(digest), digest.device_count, limits)
    runs = _placed(digest, chosen) if chosen is not None else None
    return finish(digest, runs, limits, "flex-sp-milp", begin_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Equal cascades with their time by degree."""

    cascades: tuple[int, ...]
    times_us: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of a degree and the cascades that it works off."""

    degree: int
    cascades: tuple[int, ...]


def _buckets(digest: Digest) -> list[Bucket]:
    members: dict[int, list[int]] = {}
    for cascade, shape in enumerate(digest.shape_of_cascade):
        members.setdefault(shape, []).append(cascade)
    return [
        Bucket(cascades=tuple(row), times_us=times_us(digest, row[0])) for row in members.values()
    ]


def _solve(buckets: list[Bucket], devices: int, limits: Limits) -> list[Group] | None:
    try:
        import pulp
    except ImportError as error:
        raise MissingDependencyError("PuLP is not installed", hint="pip install pulp") from error
    model = pulp.LpProblem("flexsp", pulp.LpMinimize)
    degrees = _group_degrees(buckets, devices)
    made = [model.add_variable(f"m_{p}", cat="Binary") for p in range(len(degrees))]
    counts = {
        (s, p): model.add_variable(f"x_{s}_{p}", 0, len(bucket.cascades), "Integer")
        for s, bucket in enumerate(buckets)
        for p, degree in enumerate(degrees)
        if degree in bucket.times_us
    }
    slowest = model.add_variable("T", 0)
    model += slowest
    for s, bucket in enumerate(buckets):
        row = [x for (other, _), x in counts.items() if other == s]
        model += pulp.lpSum(row) == len(bucket.cascades)
    loads = []
    for p, degree in enumerate(degrees):
        inside = {s: x for (s, other), x in counts.items() if other == p}
        loads.append(pulp.lpSum(_seconds(buckets[s], degree) * x for s, x in inside.items()))
        model += loads[p] <= slowest
        model += pulp.lpSum(inside.values()) <= sum(len(b.cascades) for b in buckets) * made[p]
    model += pulp.lpSum(d * m for d, m in zip(degrees, made, strict=True)) <= devices
    # Groups of one degree are interchangeable: the busier ones first.
    for first, second in pairwise(range(len(degrees))):
        if degrees[first] == degrees[second]:
            model += made[first] >= made[second]
            model += loads[first] >= loads[second]
    if not _run(model, limits):
        return None
    return _groups(buckets, degrees, {key: round(x.value()) for key, x in counts.items()})


def _group_degrees(buckets: list[Bucket], devices: int) -> list[int]:
    """Degrees of all groups that could be of use at once."""
    takers: Counter[int] = Counter()
    for bucket in buckets:
        takers.update(dict.fromkeys(bucket.times_us, len(bucket.cascades)))
    return [k for k in sorted(takers) for _ in range(min(devices // k, takers[k]))]


def _seconds(bucket: Bucket, degree: int) -> float:
    return bucket.times_us[degree] / US_PER_S


def _run(model: Any, limits: Limits) -> bool:  # noqa: ANN401  # PuLP ships no types
    """Solves; says whether a solution is there, which PuLP's status does not tell in time-outs."""
    import pulp
    from highspy import SolutionStatus

    solver = pulp.HiGHS(msg=False, timeLimit=limits.time_limit_s, random_seed=limits.seed)
    model.solve(solver)
    if model.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return False
    status = model.solverModel.getInfo().primal_solution_status
    return bool(status == SolutionStatus.kSolutionStatusFeasible)


def _groups(
    buckets: list[Bucket], degrees: list[int], counts: dict[tuple[int, int], int]
) -> list[Group]:
    left = [list(bucket.cascades) for bucket in buckets]
    groups = []
    for p, degree in enumerate(degrees):
        taken: list[int] = []
        for s, row in enumerate(left):
            count = counts.get((s, p), 0)
            taken += row[:count]
            del row[:count]
        if taken:
            groups.append(Group(degree=degree, cascades=tuple(taken)))
    return groups


def _placed(digest: Digest, groups: list[Group]) -> list[Run] | None:
    seats = seat(digest, [group.degree for group in groups])
    if seats is None:
        return None
    runs: list[Run] = []
    for group, devices in zip(groups, seats, strict=True):
        for cascade in group.cascades:
            runs += exact_runs(digest, cascade, devices) or ()
    return runs
