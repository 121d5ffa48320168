"""List scheduling: feasible plans in milliseconds, by several rules for degrees and order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from arachne_opt.solvers.cascade.bounds import Pick, cascade_fronts
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.placement import best_group, free_for
from arachne_opt.solvers.cascade.schedule import Run, Schedule, left_shift

# Degrees are chosen for deadlines of the bound times these factors: tight ones first.
_STRETCHES = (1.05, 1.0, 1.1, 1.18, 1.3, 1.5, 2.0)
RULES = ("chain", "area", "width")


def list_schedules(digest: Digest, bound_us: int) -> Iterator[Schedule]:
    """Schedules of all rules, one after the other: degrees for a deadline, order by priority."""
    fronts = cascade_fronts(digest)
    seen: set[tuple[Mode, ...]] = set()
    for stretch in _STRETCHES:
        modes = modes_for_deadline(digest, fronts, round(bound_us * stretch))
        if modes in seen:
            continue
        seen.add(modes)
        for rule in RULES:
            yield decode(digest, modes, priorities(digest, modes, rule))


def modes_for_deadline(
    digest: Digest, fronts: Sequence[Sequence[Pick]], deadline_us: int
) -> tuple[Mode, ...]:
    """A mode per task: each cascade's cheapest pick whose chain fits, else its fastest."""
    modes: dict[int, Mode] = {}
    for row, front in zip(digest.cascades, fronts, strict=True):
        fitting = [pick for pick in front if pick.chain_us <= deadline_us]
        pick = fitting[-1] if fitting else front[0]
        modes.update(zip(row, pick.modes, strict=True))
    return tuple(modes[i] for i in range(len(digest.tasks)))


def priorities(digest: Digest, modes: Sequence[Mode], rule: str) -> list[int]:
    """A number per task, larger first: remaining chain, remaining device time or width."""
    tail = [0] * len(modes)
    for task in reversed(digest.tasks):
        mode = modes[task.index]
        own = mode.area_us if rule == "area" else mode.least_us
        if rule == "width":
            own *= 1 + mode.degree * mode.degree
        tail[task.index] = own + max((tail[s] for s in task.successors), default=0)
    return tail


def decode(
    digest: Digest, modes: Sequence[Mode], priority: Sequence[int] | Mapping[int, int]
) -> Schedule:
    """The schedule that places ready tasks by falling priority, each on its best group."""
    free = [0] * digest.device_count
    ends = [0] * len(modes)
    groups: list[tuple[int, ...]] = [()] * len(modes)
    waiting = [len(t.predecessors) for t in digest.tasks]
    queue = [(-priority[t.index], t.index) for t in digest.tasks if not t.predecessors]
    heapq.heapify(queue)
    runs: list[Run] = []
    while queue:
        _, index = heapq.heappop(queue)
        task = digest.tasks[index]
        ready = max((ends[p] for p in task.predecessors), default=0)
        choice = best_group(digest, free_for(digest, index, free), ready, modes[index])
        late = arrival_us(digest, index, ends, groups, choice.devices)
        ends[index] = choice.end_us + max(0, late - choice.start_us)
        groups[index] = choice.devices
        for d in choice.devices:
            free[d] = ends[index]
        runs.append((index, choice.devices))
        for s in task.successors:
            waiting[s] -= 1
            if waiting[s] == 0:
                heapq.heappush(queue, (-priority[s], s))
    return left_shift(digest, runs)


def arrival_us(
    digest: Digest,
    index: int,
    ends: Sequence[int],
    groups: Sequence[tuple[int, ...]],
    devices: tuple[int, ...],
) -> int:
    """When the last input of a task is there on a group."""
    return max(
        (
            ends[p] + digest.handoff_us(index, groups[p], devices)
            for p in digest.tasks[index].predecessors
        ),
        default=0,
    )
