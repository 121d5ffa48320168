"""A plan made from that of a near problem: equal cascades keep degrees, groups and order.

The cluster may have lost or gained nodes since: a node keeps its work if it is still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.cascade.usable import usable_part
from arachne_opt.cluster import Cluster, Node
from arachne_opt.solvers.cascade.bounds import Pick, cascade_fronts
from arachne_opt.solvers.cascade.digest import Digest, Mode, binding_limits
from arachne_opt.solvers.cascade.list_schedule import (
    RULES,
    decode,
    modes_for_deadline,
    priorities,
)
from arachne_opt.solvers.cascade.placement import best_group, free_for
from arachne_opt.solvers.cascade.schedule import Run, Schedule, in_start_order, left_shift, to_plan

# Deadlines for degrees on a changed cluster, as multiples of the old makespan to scale.
_STRETCHES = (0.95, 1.0, 1.05, 1.15)


class Planned(NamedTuple):
    """A problem with a plan for it."""

    problem: CascadeProblem
    plan: CascadePlan


class _Wish(NamedTuple):
    """What the near plan suggests for a task: its mode, its group if any, and when it starts."""

    mode: Mode
    devices: tuple[int, ...] | None
    start_us: int


def nearest(problem: CascadeProblem, known: Iterable[Planned]) -> Planned | None:
    """The known problem with the most equal cascades, of those on an equal cluster.

    Equally near ones are told apart by their device time; the later in the order wins.
    """
    wanted, area_us = _multiset(problem), _area_us(problem)
    best: tuple[int, int] | None = None
    found = None
    for planned in known:
        if planned.problem.cluster != problem.cluster:
            continue
        other = _multiset(planned.problem)
        distance = sum(((wanted - other) + (other - wanted)).values())
        key = distance, abs(_area_us(planned.problem) - area_us)
        if best is None or key <= best:
            best, found = key, planned
    return found


def warm_start(problem: CascadeProblem, near: Planned) -> CascadePlan | None:
    """A legal plan for a problem after the plan of another, on the same or a changed cluster.

    Cascades that both have keep degrees, groups and order, as far as the nodes of a group are
    still there. The others are paired by device time and take the degrees where they may, else
    the cheapest that fit the makespan of the near plan; list scheduling places them. None where a
    task can run nowhere.
    """
    if binding_limits(problem):
        return None
    if problem.forbidden_devices:
        part = usable_part(problem)
        plan = warm_start(part.problem, near)
        return None if plan is None else part.to_whole(plan)
    digest = Digest(problem)
    wishes = _wishes(digest, near, device_map(near.problem.cluster, problem.cluster))
    modes = [wish.mode for wish in wishes]
    ranks = [-wish.start_us for wish in wishes]
    schedules = [_with_groups(digest, wishes), decode(digest, modes, ranks)]
    if near.problem.cluster != problem.cluster:
        schedules += _rescaled(digest, near, ranks)
    best = min((in_start_order(digest, schedule) for schedule in schedules), key=lambda s: s.key)
    return to_plan(digest, best)


def device_map(before: Cluster, after: Cluster) -> dict[int, int]:
    """The device of a changed cluster for each device of the old one that is still there.

    Nodes are known by kind and name, else by kind, else by device type and zone.
    """
    free = dict(enumerate(after.nodes))
    lost = dict(enumerate(before.nodes))
    found: dict[int, int] = {}
    for key in (_kind_and_name, Node.signature, _type_and_zone):
        for old, node in list(lost.items()):
            new = next((n for n, other in free.items() if key(other) == key(node)), None)
            if new is None:
                continue
            del free[new], lost[old]
            devices = zip(before.devices_of_node(old), after.devices_of_node(new), strict=False)
            found |= dict(devices)
    return found


def _kind_and_name(node: Node) -> list[object]:
    return [*node.signature(), node.name]


def _type_and_zone(node: Node) -> list[object]:
    return [node.device_type, node.zone]


def _rescaled(digest: Digest, near: Planned, ranks: list[int]) -> list[Schedule]:
    """List schedules with degrees for a makespan of the new cluster's size.

    In the old order, and by every rule: where much changed, the old order leads astray.
    """
    fronts = cascade_fronts(digest)
    share = near.problem.cluster.device_count / digest.device_count
    deadlines = [round(near.plan.makespan_us * share * stretch) for stretch in _STRETCHES]
    found = []
    for modes in {modes_for_deadline(digest, fronts, d): None for d in deadlines}:
        orders = [ranks, *(priorities(digest, modes, rule) for rule in RULES)]
        found += [decode(digest, modes, order) for order in orders]
    return found


def _multiset(problem: CascadeProblem) -> Counter[tuple[object, ...]]:
    """Cascades without their names, each with its number."""
    return Counter(cascade.tasks for cascade in problem.cascades)


def _area_us(problem: CascadeProblem) -> int:
    return sum(min(o.area_us for o in task.options) for _, _, task in problem.tasks())


def _wishes(digest: Digest, near: Planned, devices: Mapping[int, int]) -> list[_Wish]:
    """A wish per task of the digest; ``devices`` are the new ones of the near problem's."""
    makespan_us = near.plan.makespan_us
    placements = {(p.cascade, p.task): p for p in near.plan.placements}
    fronts = cascade_fronts(digest)
    exact, loose = _pairs(digest.problem, near.problem)
    wishes: list[_Wish] = []
    for cascade, row in enumerate(digest.cascades):
        fallback = _cheapest(fronts[cascade], makespan_us)
        left_us = fallback.chain_us
        other = exact.get(cascade, loose.get(cascade))
        for task, (index, usual) in enumerate(zip(row, fallback.modes, strict=True)):
            placement = placements.get((other, task)) if other is not None else None
            start_us = max(0, makespan_us - left_us)
            left_us = max(0, left_us - usual.least_us)
            wish = None
            if placement is not None:
                start_us = placement.start_us
                kind = near.problem.cluster.devices[placement.devices[0]].device_type.name
                group = _group(placement, devices) if cascade in exact else None
                wish = _wish(digest, index, placement, kind, group)
            wishes.append(wish or _Wish(usual, None, start_us))
    return wishes


def _group(placement: Placement, devices: Mapping[int, int]) -> tuple[int, ...] | None:
    """The devices of a placement on the new cluster, None where one is gone."""
    moved = [devices[d] for d in placement.devices if d in devices]
    return tuple(sorted(moved)) if len(moved) == placement.degree else None


def _wish(
    digest: Digest,
    index: int,
    placement: Placement,
    kind: str,
    group: tuple[int, ...] | None,
) -> _Wish | None:
    """To run a task as it ran; None where its degree or device type is not to be had."""
    if kind not in digest.kind_names:
        return None
    mode = digest.tasks[index].mode(placement.degree, digest.kind_names.index(kind))
    if group is not None and not digest.tasks[index].may_use(group):
        group = None
    return None if mode is None else _Wish(mode, group, placement.start_us)


def _cheapest(front: list[Pick], deadline_us: int) -> Pick:
    fitting = [pick for pick in front if pick.chain_us <= deadline_us]
    return fitting[-1] if fitting else front[0]


def _pairs(
    problem: CascadeProblem, near: CascadeProblem
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """For cascades of a problem those of a near one: equal ones, and others of like size."""
    # A smaller cluster lacks the options that are wider than it is.
    widest = min(problem.cluster.device_count, near.cluster.device_count)
    free: dict[tuple[object, ...], list[int]] = {}
    for number, cascade in enumerate(near.cascades):
        free.setdefault(_narrowed(cascade, widest), []).append(number)
    exact = {
        number: free[key].pop(0)
        for number, key in enumerate(_narrowed(c, widest) for c in problem.cascades)
        if free.get(key)
    }
    rest = [number for number in range(len(problem.cascades)) if number not in exact]
    spare = [number for row in free.values() for number in row]
    rest.sort(key=lambda c: (-_least_us(problem, c), c))
    spare.sort(key=lambda c: (-_least_us(near, c), c))
    return exact, dict(zip(rest, spare, strict=False))


def _narrowed(cascade: Cascade, widest: int) -> tuple[object, ...]:
    """The tasks of a cascade with the options up to a degree."""
    return tuple(
        (t.name, t.predecessors, t.input_bytes, tuple(o for o in t.options if o.degree <= widest))
        for t in cascade.tasks
    )


def _least_us(problem: CascadeProblem, cascade: int) -> int:
    """Least device time of a cascade."""
    return sum(min(o.area_us for o in task.options) for task in problem.cascades[cascade].tasks)


def _with_groups(digest: Digest, wishes: list[_Wish]) -> Schedule:
    """The schedule in which wished groups are kept and the others are placed around them."""
    order = sorted(range(len(wishes)), key=lambda i: (wishes[i].start_us, i))
    free = [0] * digest.device_count
    ends: dict[int, int] = {}
    runs: list[Run] = []
    waiting = list(order)
    while waiting:
        # The first task in the order whose predecessors are placed.
        index = next(i for i in waiting if all(p in ends for p in digest.tasks[i].predecessors))
        waiting.remove(index)
        ready = max((ends[p] for p in digest.tasks[index].predecessors), default=0)
        mode, devices, _ = wishes[index]
        if devices is None:
            devices = best_group(digest, free_for(digest, index, free), ready, mode).devices
        start = max(ready, *(free[d] for d in devices))
        ends[index] = start + digest.duration_us(index, devices)
        for d in devices:
            free[d] = ends[index]
        runs.append((index, devices))
    return left_shift(digest, runs)
