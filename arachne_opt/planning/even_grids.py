"""Grids whose stages a trainer cuts itself: all are estimated, the best are checked and priced."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from itertools import pairwise, permutations, product

from arachne_opt.costs.pipeline.closed_form import stage_sends_s
from arachne_opt.costs.pipeline.tables import TableCosts
from arachne_opt.errors import InfeasibleError
from arachne_opt.exporters.grid import CutRule
from arachne_opt.pipeline.check import check_plan
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import PipelinePlan, ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.template import ReplicaBlock, Template
from arachne_opt.solvers.base import Limits

_PRICED = 200
_WANTED = 5

# Kind of every stage, replicas and micro-batch.
Layout = tuple[tuple[ReplicaKind, ...], int, int]


def even_grids(problem: PipelineProblem, rule: CutRule, limits: Limits) -> Iterator[PipelinePlan]:
    """A few legal plans with the cuts of a rule, best estimates first."""
    costs = TableCosts(problem)
    deadline = time.monotonic() + limits.time_limit_s
    rows = costs.row_count
    best: list[tuple[float, int, Layout]] = []
    for number, layout in enumerate(all_layouts(problem, costs, rule)):
        if number % 256 == 0 and time.monotonic() > deadline:
            break
        cuts = rule(rows, len(layout[0]))
        assert cuts is not None  # only such numbers of stages are laid out
        entry = (-_estimate_s(problem, costs, layout, cuts), -number, layout)
        if len(best) < _PRICED:
            heapq.heappush(best, entry)
        else:
            heapq.heappushpop(best, entry)
    given = 0
    for _, _, layout in sorted(best, reverse=True):
        plan = plan_of_layout(problem, layout, rule)
        if plan is not None:
            yield plan
            given += 1
            if given == _WANTED:
                return


def all_layouts(problem: PipelineProblem, costs: TableCosts, rule: CutRule) -> Iterator[Layout]:
    """Every grid: one tp, types in every order, stages of each, replicas, micro-batch."""
    kinds = [k for k in costs.kinds if k.ep == 1]
    most = problem.options.max_stages or costs.row_count
    lengths = [n for n in range(1, most + 1) if rule(costs.row_count, n) is not None]
    for tp in sorted({k.tp for k in kinds}):
        mine = [k for k in kinds if k.tp == tp]
        for size in range(1, len(mine) + 1):
            for order in permutations(mine, size):
                yield from _of_order(problem, costs, order, lengths)


def _of_order(
    problem: PipelineProblem,
    costs: TableCosts,
    order: tuple[ReplicaKind, ...],
    lengths: list[int],
) -> Iterator[Layout]:
    room = [_groups(problem, kind) for kind in order]
    samples = problem.global_batch
    for replicas in range(1, min(room) + 1):
        shared = set.intersection(*(set(costs.microbatches(kind)) for kind in order))
        fit = [
            m
            for m in sorted(shared)
            if problem.options.allow_excess or samples % (m * replicas) == 0
        ]
        most = [groups // replicas for groups in room]
        splits = (counts for length in lengths for counts in _splits(length, most))
        for counts, m in product(splits if fit else (), fit):
            stages = tuple(k for k, n in zip(order, counts, strict=True) for _ in range(n))
            yield stages, replicas, m


def _splits(total: int, most: list[int]) -> Iterator[tuple[int, ...]]:
    """Ways to share a number of stages out, at least one to each type."""
    if len(most) == 1:
        if 1 <= total <= most[0]:
            yield (total,)
        return
    for first in range(1, min(most[0], total - len(most) + 1) + 1):
        for rest in _splits(total - first, most[1:]):
            yield (first, *rest)


def _groups(problem: PipelineProblem, kind: ReplicaKind) -> int:
    """Tensor-parallel groups of a kind that the nodes hold."""
    nodes = problem.nodes_of_type[kind.device_type]
    return sum(n.device_count // kind.tp for n in nodes if n.zone == kind.zone)


def _estimate_s(
    problem: PipelineProblem, costs: TableCosts, layout: Layout, cuts: tuple[int, ...]
) -> float:
    """The closed form without updates: compute, sends, and the slowest gradient exchange."""
    kinds, replicas, m = layout
    rings = [[kind] * replicas for kind in kinds]
    work = [costs.work_s(k, m, cuts[i], cuts[i + 1]) for i, k in enumerate(kinds)]
    sends = []
    for i, (a, b) in enumerate(pairwise(rings)):
        forward, backward = costs.cut_s(a, b, m * replicas)
        sends.append((float(forward[cuts[i + 1]]), float(backward[cuts[i + 1]])))
    loads = [w + s for w, s in zip(work, stage_sends_s(sends), strict=True)]
    sync = max(
        float(costs.stage_sync_s(ring)[cuts[i], cuts[i + 1]]) for i, ring in enumerate(rings)
    )
    rounds = -(-problem.global_batch // (m * replicas))
    return (rounds - 1) * max(loads) + sum(loads) + sync


def plan_of_layout(problem: PipelineProblem, layout: Layout, rule: CutRule) -> PipelinePlan | None:
    """The plan of a grid with nodes; None where it is not legal or does not fit into the nodes."""
    kinds, replicas, m = layout
    cuts = rule(problem.model.row_count, len(kinds))
    assert cuts is not None  # see above
    template = Template(stages=tuple((ReplicaBlock(kind=k, count=replicas),) for k in kinds))
    rounds = -(-problem.global_batch // (m * replicas))
    plan = PipelinePlan(
        model=problem.model.name,
        global_batch=problem.global_batch,
        pipelines=(template.pipeline(cuts, m, rounds),),
        zero1=problem.options.zero1,
    )
    if check_plan(problem, plan):
        return None
    try:
        return place(problem, plan)
    except InfeasibleError:
        return None
