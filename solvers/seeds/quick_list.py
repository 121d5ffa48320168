"""List schedules as ``decode`` makes them, for searches among thousands.

It takes three fifths of the time of ``decode``, which knows pins.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence

from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.list_schedule import arrival_us
from arachne_opt.solvers.cascade.placement import Choice, cross_node_group
from arachne_opt.solvers.cascade.schedule import Run, Schedule, left_shift
from arachne_opt.units import scale_up

# Free time and number of every device of a node, in rising order.
_Row = list[tuple[int, int]]


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

    def decode(
        self, modes: Sequence[Mode], priority: Sequence[int], most_us: int
    ) -> Schedule | None:
        """The schedule of ready tasks by falling priority; None where it ends after a time."""
        digest = self._digest
        latest = [most_us - us for us in self._after(modes)]
        free = [0] * digest.device_count
        rows: list[_Row] = [[(0, d) for d in sorted(node.devices)] for node in digest.nodes]
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
            choice = self._best(rows, free, ready, modes[index])
            end = choice.end_us
            if digest.has_handoff:
                late = arrival_us(digest, index, ends, groups, choice.devices)
                end += max(0, late - choice.start_us)
            if end > latest[index]:
                return None
            ends[index], groups[index] = end, choice.devices
            self._occupy(rows, free, choice.devices, end)
            runs.append((index, choice.devices))
            for s in task.successors:
                waiting[s] -= 1
                if waiting[s] == 0:
                    heapq.heappush(queue, (-priority[s], s))
        return left_shift(digest, runs)

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
        fitting = [n for n in self._numbers[mode.kind] if len(rows[n]) > last]
        best: Choice | None = None
        if fitting:
            start = max(ready_us, min(rows[n][last][0] for n in fitting))
            best = min(
                self._on_node(rows[n], start, mode) for n in fitting if rows[n][last][0] <= start
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
        waste = degree * start_us - sum(us for us, _ in taken)
        devices = tuple(sorted(d for _, d in taken))
        return Choice(start_us + mode.duration_us, waste, start_us, devices)

    def _may_cross(self, rows: list[_Row], ready_us: int, mode: Mode, best: Choice | None) -> bool:
        """Whether enough devices are free for a group over nodes that ends before the best."""
        if best is None:
            return True
        before = best.end_us - scale_up(mode.duration_us, self._digest.mildest_ppm)
        if ready_us >= before:
            return False
        found = sum(bisect_left(rows[n], (before,)) for n in self._numbers[mode.kind])
        return found >= mode.degree

    def _occupy(
        self, rows: list[_Row], free: list[int], devices: Sequence[int], end_us: int
    ) -> None:
        for d in devices:
            free[d] = end_us
        for n in {self._digest.node_of[d] for d in devices}:
            rows[n] = sorted((free[d], d) for _, d in rows[n])
