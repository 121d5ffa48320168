"""List schedules as ``decode`` makes them, for searches among thousands.

A schedule like an earlier one is made from the first task on that is placed otherwise.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.list_schedule import arrival_us
from arachne_opt.solvers.cascade.placement import Choice, cross_node_group
from arachne_opt.solvers.cascade.schedule import Schedule, left_shift
from arachne_opt.units import scale_up

# Free time and number of every device of a node, in rising order.
_Row = list[tuple[int, int]]
# Before a task: when devices are free, the same by node, and device time that is lost.
_State = tuple[list[int], list[_Row], int]


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A list schedule on the way: tasks in order, with their groups and cautious ends.

    Args:
        before: the state before each task of the order.
    """

    modes: tuple[Mode, ...]
    order: list[int]
    ends_us: list[int]
    groups: list[tuple[int, ...]]
    before: list[_State]

    @property
    def makespan_us(self) -> int:
        """End of the last task."""
        return max(self.ends_us)

    @property
    def key(self) -> tuple[int, int]:
        """What is minimised, in order: makespan, sum of ends."""
        return max(self.ends_us), sum(self.ends_us)


class QuickList:
    """Decodes modes and priorities of a problem without pins.

    Devices of a node stay sorted by when they are free, and schedules are given up as soon as it
    is clear that they take too long.
    """

    def __init__(self, digest: Digest) -> None:
        assert not digest.problem.pinned
        self._digest = digest
        self._numbers = [
            [n.index for n in digest.nodes if n.kind == k] for k in range(len(digest.kind_names))
        ]
        self._ready = [t.index for t in digest.tasks if not t.predecessors]
        self._waiting = [len(t.predecessors) for t in digest.tasks]

    def schedule(self, listed: Listed) -> Schedule:
        """The schedule with its groups as early as they can be."""
        return left_shift(self._digest, [(i, listed.groups[i]) for i in listed.order])

    def decode(
        self,
        modes: Sequence[Mode],
        priority: Sequence[int],
        most_us: int,
        like: Listed | None = None,
    ) -> Listed | None:
        """The schedule of ready tasks by falling priority; None where it ends after a time.

        What another schedule ``like`` it begins with is taken from there.
        """
        tasks, order = self._digest.tasks, self._order(priority)
        latest = [most_us - us for us in self._after(modes)]
        spare_us = most_us * self._digest.device_count - sum([m.area_us for m in modes])
        made = self._begun(modes, order, like)
        free, rows, lost_us = self._state(made, like)
        ends, groups = made.ends_us, made.groups
        for index in order[len(made.before) :]:
            made.before.append((free[:], rows[:], lost_us))
            mode = modes[index]
            ready = max([ends[p] for p in tasks[index].predecessors], default=0)
            choice = self._best(rows, free, ready, mode)
            end, devices = choice.end_us, choice.devices
            if self._digest.has_handoff:
                late = arrival_us(self._digest, index, ends, groups, devices)
                end += max(0, late - choice.start_us)
            lost_us += choice.waste_us + mode.degree * (end - choice.start_us) - mode.area_us
            if end > latest[index] or lost_us > spare_us:
                return None
            ends[index], groups[index] = end, devices
            self._occupy(rows, free, devices, end)
        return made

    def _begun(self, modes: Sequence[Mode], order: list[int], like: Listed | None) -> Listed:
        """A schedule with the tasks that are placed as in another one."""
        if like is None:
            count = len(modes)
            return Listed(tuple(modes), order, [0] * count, [()] * count, [])
        alike = 0
        for old, new in zip(like.order, order, strict=True):
            if old != new or like.modes[old] is not modes[new]:
                break
            alike += 1
        # The last task is placed again: states stand before tasks.
        alike = min(alike, len(order) - 1)
        return Listed(tuple(modes), order, like.ends_us[:], like.groups[:], like.before[:alike])

    def _state(self, made: Listed, like: Listed | None) -> _State:
        """The state after the tasks that are placed."""
        if like is not None:
            free, rows, lost_us = like.before[len(made.before)]
            return free[:], rows[:], lost_us
        nodes = [[(0, d) for d in sorted(node.devices)] for node in self._digest.nodes]
        return [0] * self._digest.device_count, nodes, 0

    def _order(self, priority: Sequence[int]) -> list[int]:
        """Tasks as they become ready, by falling priority."""
        waiting, order = self._waiting[:], []
        queue = [(-priority[i], i) for i in self._ready]
        heapq.heapify(queue)
        while queue:
            _, index = heapq.heappop(queue)
            order.append(index)
            for s in self._digest.tasks[index].successors:
                waiting[s] -= 1
                if waiting[s] == 0:
                    heapq.heappush(queue, (-priority[s], s))
        return order

    def _after(self, modes: Sequence[Mode]) -> list[int]:
        """The least time from the end of each task to that of its cascade."""
        after = [0] * len(modes)
        for task in reversed(self._digest.tasks):
            rest = [after[s] + modes[s].least_us for s in task.successors]
            after[task.index] = max(rest, default=0)
        return after

    def _best(self, rows: list[_Row], free: list[int], ready_us: int, mode: Mode) -> Choice:
        """The group that ``best_group`` chooses."""
        digest, last = self._digest, mode.degree - 1
        fitting = [row for n in self._numbers[mode.kind] if len(row := rows[n]) > last]
        best: Choice | None = None
        if fitting:
            start = max(ready_us, min([row[last][0] for row in fitting]))
            best = min(
                [self._on_node(row, start, mode) for row in fitting if row[last][0] <= start]
            )
        if last > 0 and len(digest.nodes) > 1 and self._may_cross(rows, ready_us, mode, best):
            across = cross_node_group(digest, free, ready_us, mode, best)
            if across is not None and (best is None or across < best):
                best = across
        assert best is not None
        return best

    def _on_node(self, row: _Row, start_us: int, mode: Mode) -> Choice:
        degree, upto = mode.degree, bisect_left(row, (start_us + 1,))
        taken = row[upto - degree : upto]
        waste = degree * start_us - sum([us for us, _ in taken])
        devices = tuple(sorted([d for _, d in taken]))
        return Choice(start_us + mode.duration_us, waste, start_us, devices)

    def _may_cross(self, rows: list[_Row], ready_us: int, mode: Mode, best: Choice | None) -> bool:
        """Whether enough devices are free for a group over nodes that ends before the best."""
        if best is None:
            return True
        before = best.end_us - scale_up(mode.duration_us, self._digest.mildest_ppm)
        if ready_us >= before:
            return False
        found = sum([bisect_left(rows[n], (before,)) for n in self._numbers[mode.kind]])
        return found >= mode.degree

    def _occupy(
        self, rows: list[_Row], free: list[int], devices: Sequence[int], end_us: int
    ) -> None:
        for d in devices:
            free[d] = end_us
        for n in {self._digest.node_of[d] for d in devices}:
            rows[n] = sorted([(free[d], d) for _, d in rows[n]])
