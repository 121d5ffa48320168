"""Changes of list schedules: other degrees or priorities, of what delays the end most of all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.quick_list import Listed

# Shares: of changes that change degrees; of these, of single tasks, and of weighted draws.
_OF_DEGREES, _OF_TASKS, _DRAWN = 0.7, 0.8, 0.5
# Shares of changes of what delays the end, and of changes of two tasks.
_FOCUS, _TWO = 0.75, 0.5
_SLACK = 0.002  # of the makespan: what could end that much later delays the end


class Choice(NamedTuple):
    """A mode and a priority for each task."""

    modes: list[Mode]
    priority: list[int]


class Changes:
    """Random changes of list schedules.

    Args:
        modes: to choose from, for each task.
        weights: odds of the modes, added up from the first on; None for equal odds.
    """

    def __init__(
        self,
        digest: Digest,
        modes: Sequence[Sequence[Mode]],
        seed: int,
        weights: Sequence[Sequence[float]] | None = None,
    ) -> None:
        self._digest = digest
        self._random = random.Random(seed)
        self._modes, self._weights = modes, weights
        self._of: Listed | None = None
        self._late: list[int] = []

    def near(self, choice: Choice, listed: Listed) -> Choice:
        """The same with degrees of one or two cascades or tasks drawn anew, or other priorities."""
        modes, priority = list(choice.modes), list(choice.priority)
        if self._random.random() < _OF_DEGREES:
            self._change_degrees(modes, listed)
        else:
            self._change_priorities(priority, listed)
        return Choice(modes, priority)

    def task(self, listed: Listed) -> int:
        """A task, often one that delays the end."""
        if self._of is not listed:
            self._of, self._late = listed, critical(self._digest, listed)
        focused = self._late and self._random.random() < _FOCUS
        return self._random.choice(self._late if focused else listed.order)

    def _change_degrees(self, modes: list[Mode], listed: Listed) -> None:
        for task in self._some(listed):
            row: Sequence[int] = (task,)
            if self._random.random() >= _OF_TASKS:
                row = self._digest.cascades[self._digest.tasks[task].cascade]
            for t in row:
                weights = None
                if self._weights is not None and self._random.random() < _DRAWN:
                    weights = self._weights[t]
                (modes[t],) = self._random.choices(self._modes[t], cum_weights=weights)

    def _change_priorities(self, priority: list[int], listed: Listed) -> None:
        ranked = [priority[t] for t in listed.order]
        for t in self._some(listed):
            priority[t] = self._random.choice(ranked) + self._random.randrange(-1, 2)

    def _some(self, listed: Listed) -> list[int]:
        """A task that often delays the end, and now and then another."""
        found = [self.task(listed)]
        if self._random.random() < _TWO:
            found.append(self._random.choice(listed.order))
        return found


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
