"""Changes of list schedules: other degrees or priorities, of what delays the end most of all."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.walks.chance import Chance
from arachne_opt.solvers.cascade.walks.choice import ANYWHERE, FREE, Choice, ModeTable
from arachne_opt.solvers.cascade.walks.quick_list import Listed

# Shares: of changes that change degrees; of these, of single tasks, and of weighted draws; of the
# other draws, of the next mode up or down.
_OF_DEGREES, _OF_TASKS, _DRAWN, _NEXT = 0.5, 0.8, 0.5, 0.5
# Share of the other changes that change sites; of these, of no particular ones.
_OF_SITES, _ANY_NODE = 0.5, 0.6
# Share of changes of priorities that move a task by at most so many turns.
_CLOSE, _REACH = 0.8, 4
# Shares of changes of what delays the end, and of changes of two tasks.
_FOCUS, _TWO = 0.75, 0.5
_SLACK = 0.002  # of the makespan: what could end that much later delays the end


class Changes:
    """Random changes of list schedules.

    Args:
        nodes: that may be used, by type.
        odds: of the drawn modes of each task, added up from the first on; None for equal odds.
    """

    def __init__(
        self,
        digest: Digest,
        table: ModeTable,
        nodes: Sequence[int],
        chance: Chance,
        odds: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self._digest, self._table = digest, table
        self._nodes, self._chance, self._odds = nodes, chance, odds
        self._of: Listed | None = None
        self._late: list[int] = []

    def near(self, choice: Choice, listed: Listed) -> Choice | None:
        """The same with degrees of one or two cascades or tasks drawn anew, or other priorities.

        None where that happens to be the same.
        """
        near = choice.copy()
        if self._chance.unit() < _OF_DEGREES:
            changed = self._change_degrees(near, listed)
        elif self._chance.unit() < _OF_SITES:
            changed = self._change_sites(near, listed)
        else:
            changed = self._change_priorities(near.priority, listed)
        return near if changed else None

    def task(self, listed: Listed) -> int:
        """A task, often one that delays the end."""
        if self._of is not listed:
            self._of, self._late = listed, critical(self._digest, listed)
        if self._late and self._chance.unit() < _FOCUS:
            return self._late[self._chance.below(len(self._late))]
        return self._any(listed)

    def _any(self, listed: Listed) -> int:
        return listed.order[self._chance.below(len(listed.order))]

    def _some(self, listed: Listed) -> list[int]:
        """A task that often delays the end, and now and then another."""
        found = [self.task(listed)]
        if self._chance.unit() < _TWO:
            found.append(self._any(listed))
        return found

    def _change_degrees(self, near: Choice, listed: Listed) -> bool:
        changed = False
        for task in self._some(listed):
            row: Sequence[int] = (task,)
            if self._chance.unit() >= _OF_TASKS:
                row = self._digest.cascades[self._digest.tasks[task].cascade]
            for t in row:
                before, near.picks[t] = near.picks[t], self._drawn(t, near.picks[t])
                if near.picks[t] != before:
                    near.groups[t], changed = FREE, True
        return changed

    def _drawn(self, task: int, pick: int) -> int:
        chance, count = self._chance, self._table.drawn[task]
        if self._odds is not None and chance.unit() < _DRAWN:
            odds = self._odds[task]
            return bisect_right(odds, chance.unit() * odds[-1], 0, count - 1)
        if chance.unit() < _NEXT:
            following = pick + (1 if chance.unit() < 0.5 else -1)
            if 0 <= following < count:
                return following
        return chance.below(count)

    def _change_sites(self, near: Choice, listed: Listed) -> bool:
        changed = False
        for t in self._some(listed):
            wanted = ANYWHERE
            if self._chance.unit() >= _ANY_NODE:
                wanted = self._nodes[self._chance.below(len(self._nodes))]
            changed |= wanted != near.sites[t] or near.groups[t] != FREE
            near.sites[t], near.groups[t] = wanted, FREE
        return changed

    def _change_priorities(self, priority: array[int], listed: Listed) -> bool:
        changed, old = False, priority[:]
        for t in self._some(listed):
            wanted = old[self._like(t, listed)] + self._chance.below(3) - 1
            before, priority[t] = priority[t], wanted
            changed |= wanted != before
        return changed

    def _like(self, task: int, listed: Listed) -> int:
        """A task whose turn another takes, often one a few turns away."""
        if self._chance.unit() >= _CLOSE:
            return self._any(listed)
        turns = 1 + self._chance.below(_REACH)
        later = turns if self._chance.unit() < 0.5 else -turns
        at = listed.order.index(task) + later
        return listed.order[max(0, min(len(listed.order) - 1, at))]


def critical(digest: Digest, listed: Listed) -> list[int]:
    """Tasks that would delay the end if they ended but a little later."""
    end_us = listed.makespan_us
    least_us = end_us * _SLACK
    start_us: dict[int, int] = {}
    found = []
    # Until when devices have to be free, by the sets of them that later groups have of a node.
    free_us: list[list[tuple[int, int]]] = [[] for _ in digest.nodes]
    for i in reversed(listed.order):
        latest = min([start_us[s] for s in digest.tasks[i].successors], default=end_us)
        for n, mask in listed.groups[i]:
            latest = min([latest, *[us for held, us in free_us[n] if held & mask]])
        if latest - listed.ends_us[i] <= least_us:
            found.append(i)
        start_us[i] = latest - listed.spans_us[i]
        for n, mask in listed.groups[i]:
            left = [(rest, us) for held, us in free_us[n] if (rest := held & ~mask)]
            free_us[n] = [*left, (mask, start_us[i])]
    return found
