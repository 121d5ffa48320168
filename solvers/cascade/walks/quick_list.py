"""List schedules by the rule of ``decode``, for searches among thousands.

A schedule like an earlier one is made from the first task on that is placed otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.schedule import Run
from arachne_opt.solvers.cascade.walks.choice import ANYWHERE, FREE, Group
from arachne_opt.solvers.cascade.walks.quick_groups import QuickGroups, Row

# Before a task: the slots of every node, and device time that is lost.
_State = tuple[list[Row], int]

ANY_US = 1 << 62  # longer than any schedule
_REMEMBERED = 1 << 16  # hand-offs that are kept


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A list schedule on the way: tasks in order, with their groups and cautious ends.

    Args:
        ends_us: by task, 0 for tasks that are not in the schedule.
        held: groups that were given.
        spans_us: times of the tasks on their groups.
        after_us: the least time from the end of each task to that of its cascade.
        before: the state before each task of the order.
    """

    modes: Sequence[Mode]
    sites: Sequence[int]
    held: Sequence[Group]
    order: list[int]
    ends_us: list[int]
    spans_us: list[int]
    groups: list[Group]
    after_us: list[int]
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

    Schedules are given up as soon as it is clear that they take too long.

    Args:
        nodes: that may be used, in rising order; None for all.
    """

    def __init__(self, digest: Digest, nodes: Sequence[int] | None = None) -> None:
        assert not digest.problem.pinned
        self._digest = digest
        self._groups = QuickGroups(digest, nodes)
        self.nodes = self._groups.nodes
        self._all = range(len(digest.tasks))
        self._anywhere, self._free = [ANYWHERE] * len(digest.tasks), [FREE] * len(digest.tasks)
        self._predecessors = [t.predecessors for t in digest.tasks]
        self._waits = digest.has_handoff
        cluster = digest.problem.cluster
        # Hand-offs then depend on numbers of devices alone.
        self._even = not cluster.zone_links and len({n.intra_link for n in cluster.nodes}) == 1
        self._lags: dict[tuple[object, ...], int] = {}

    def runs(self, listed: Listed) -> list[Run]:
        """Tasks in order, with their devices."""
        return [(i, self._groups.devices(listed.groups[i])) for i in listed.order]

    def fits(self, mode: Mode, group: Group) -> bool:
        """Whether a task may be held on a group."""
        return self._groups.fits(mode, group)

    def decode(
        self,
        modes: Sequence[Mode],
        priority: Sequence[int],
        most_us: int,
        like: Listed | None = None,
        tasks: Sequence[int] | None = None,
        sites: Sequence[int] | None = None,
        held: Sequence[Group] | None = None,
    ) -> Listed | None:
        """The schedule of ready tasks by falling priority.

        None where it ends after a time, or where the nodes have too few devices for a mode.

        What another schedule ``like`` it begins with is taken from there. ``tasks`` are those of
        some cascades, in rising order, ``sites`` and ``held`` are as the sites and groups of a
        ``Choice``; None for all, and any.
        """
        sites = self._anywhere if sites is None else sites
        held = self._free if held is None else held
        order = self._order(priority, self._all if tasks is None else tasks)
        made = self._begun(modes, sites, held, order, like)
        rows, lost_us = self._state(made, like)
        spare_us = most_us * self._groups.device_count - sum([modes[i].area_us for i in order])
        ends, groups, spans, after = made.ends_us, made.groups, made.spans_us, made.after_us
        for index in order[len(made.before) :]:
            made.before.append((rows[:], lost_us))
            mode, ready_us = modes[index], 0
            for p in self._predecessors[index]:
                ready_us = max(ready_us, ends[p])
            offer = (
                self._groups.held(rows, ready_us, mode, held[index])
                if held[index]
                else self._groups.best(rows, ready_us, mode, sites[index])
            )
            if offer is None:
                return None
            start_us, span_us, waste_us, group = offer
            end_us = start_us + span_us
            if self._waits and ready_us:
                end_us += max(0, self._arrival_us(index, ends, groups, group) - start_us)
            lost_us += waste_us + mode.degree * (end_us - start_us) - mode.area_us
            if end_us + after[index] > most_us or lost_us > spare_us:
                return None
            ends[index], spans[index], groups[index] = end_us, span_us, group
            self._groups.occupy(rows, group, end_us)
        return made

    def _begun(
        self,
        modes: Sequence[Mode],
        sites: Sequence[int],
        held: Sequence[Group],
        order: list[int],
        like: Listed | None,
    ) -> Listed:
        """A schedule with the tasks that are placed as in another one."""
        count = len(modes)
        if like is None:
            after = [0] * count
            self._set_after(range(len(self._digest.cascades)), modes, after)
            spans, groups = [0] * count, [FREE] * count
            return Listed(modes, sites, held, order, [0] * count, spans, groups, after, [])
        changed = {
            i
            for i in self._all  # what is not in this schedule may be in the next one
            if modes[i] is not like.modes[i] or sites[i] != like.sites[i] or held[i] != like.held[i]
        }
        after = like.after_us[:]
        self._set_after({self._digest.tasks[i].cascade for i in changed}, modes, after)
        alike = 0
        for was, now in zip(like.order, order, strict=False):
            if was != now or was in changed:
                break
            alike += 1
        # The last task is placed again: states stand before tasks.
        alike = min(alike, len(order) - 1, len(like.order) - 1)
        ends = [0] * count
        for i in order[:alike]:
            ends[i] = like.ends_us[i]
        spans, groups = like.spans_us[:], like.groups[:]
        before = like.before[:alike]
        return Listed(modes, sites, held, order, ends, spans, groups, after, before)

    def _set_after(
        self, cascades: Iterable[int], modes: Sequence[Mode], after_us: list[int]
    ) -> None:
        """The least time from the end of each task of some cascades to that of the cascade."""
        for cascade in cascades:
            for i in reversed(self._digest.cascades[cascade]):
                rest_us = [
                    after_us[s] + modes[s].least_us for s in self._digest.tasks[i].successors
                ]
                after_us[i] = max(rest_us, default=0)

    def _state(self, made: Listed, like: Listed | None) -> _State:
        """The state after the tasks that are placed."""
        if like is None:
            return self._groups.rows(), 0
        rows, lost_us = like.before[len(made.before)]
        return rows[:], lost_us

    def _order(self, priority: Sequence[int], tasks: Sequence[int]) -> list[int]:
        """Tasks as they become ready, by falling priority; by number where that is equal."""
        late: dict[int, int] = {}
        for i in tasks:
            # Later than its predecessors, whatever its priority.
            mine = -priority[i]
            for p in self._predecessors[i]:
                mine = max(mine, late[p])
            late[i] = mine
        return sorted(tasks, key=late.__getitem__)

    def _arrival_us(
        self, index: int, ends: Sequence[int], groups: Sequence[Group], group: Group
    ) -> int:
        """When the last input of a task is there on a group."""
        size = self._digest.tasks[index].input_bytes
        return max(
            [
                ends[p] + (self._lag_us(index, size, groups[p], group) if size else 0)
                for p in self._predecessors[index]
            ]
        )

    def _lag_us(self, index: int, size: int, before: Group, group: Group) -> int:
        """The hand-off of an input from one group to another."""
        key: tuple[object, ...] = size, before, group
        if self._even:
            lacks = _lacks(before, group)
            if lacks == (0, 0):
                return 0
            key = size, sum([mask.bit_count() for _, mask in group]), lacks
        known = self._lags.get(key)
        if known is None:
            if len(self._lags) >= _REMEMBERED:
                self._lags.clear()
            devices = self._groups.devices
            known = self._digest.handoff_us(index, devices(before), devices(group))
            self._lags[key] = known
        return known


def _lacks(before: Group, group: Group) -> tuple[int, int]:
    """Devices of a group that another lacks, on nodes of the other and elsewhere."""
    held, near, far = dict(before), 0, 0
    for n, mask in group:
        there = held.get(n)
        if there is None:
            far += mask.bit_count()
        else:
            near += (mask & ~there).bit_count()
    return near, far
