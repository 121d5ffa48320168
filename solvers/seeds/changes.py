"""Changes of list schedules: other degrees or priorities, of what delays the end most of all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from arachne_opt.costs.pipeline.base import Floats
from arachne_opt.solvers.cascade.decoder import FastDecoder
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.seeds.quick_list import Listed

# Shares: of changes that change degrees; of these, of single tasks, and of the policy's draws.
_OF_DEGREES, _OF_TASKS, _DRAWN = 0.7, 0.8, 0.5
# Shares of changes of what delays the end, and of changes of two tasks.
_FOCUS, _TWO = 0.75, 0.5
_SLACK = 0.002  # of the makespan: what could end that much later delays the end


class Choice(NamedTuple):
    """A mode and a priority for each task."""

    modes: list[Mode]
    priority: list[int]


class Changes:
    """Random changes of the best list schedule so far.

    Args:
        logits: what the policy says of each mode of each task, in the order of the decoder.
    """

    def __init__(self, decoder: FastDecoder, logits: Floats, seed: int) -> None:
        self._digest = decoder.digest
        self._random = random.Random(seed)
        self._modes = [[line.mode for line in lines] for lines in decoder.modes]
        self._weights = _weights(logits, [len(lines) for lines in decoder.modes])
        self._of: Listed | None = None
        self._late: list[int] = []

    def near(self, choice: Choice, listed: Listed) -> Choice:
        """The same with degrees of one or two cascades or tasks drawn anew, or other priorities."""
        if self._of is not listed:
            self._of, self._late = listed, critical(self._digest, listed)
        modes, priority = list(choice.modes), list(choice.priority)
        if self._random.random() < _OF_DEGREES:
            self._change_degrees(modes)
        else:
            self._change_priorities(priority)
        return Choice(modes, priority)

    def _change_degrees(self, modes: list[Mode]) -> None:
        for task in self._some():
            row: Sequence[int] = (task,)
            if self._random.random() >= _OF_TASKS:
                row = self._digest.cascades[self._digest.tasks[task].cascade]
            for t in row:
                weights = self._weights[t] if self._random.random() < _DRAWN else None
                (modes[t],) = self._random.choices(self._modes[t], cum_weights=weights)

    def _change_priorities(self, priority: list[int]) -> None:
        ranked = sorted(priority)
        for t in self._some():
            priority[t] = self._random.choice(ranked) + self._random.randrange(-1, 2)

    def _some(self) -> list[int]:
        """A task or two, often one that delays the end."""
        chance, count = self._random, len(self._modes)
        focused = self._late and chance.random() < _FOCUS
        found = [chance.choice(self._late) if focused else chance.randrange(count)]
        if chance.random() < _TWO:
            found.append(chance.randrange(count))
        return found


def _weights(logits: Floats, sizes: Sequence[int]) -> list[list[float]]:
    """Cumulated odds of the modes of each task."""
    first, found = 0, []
    for size in sizes:
        own = logits[first : first + size]
        found.append(list(accumulate(np.exp(own - own.max()).tolist())))
        first += size
    return found


def critical(digest: Digest, listed: Listed) -> list[int]:
    """Tasks that would delay the end if they ended but a little later."""
    end_us = listed.makespan_us
    least_us = end_us * _SLACK
    start_us, free_us = [end_us] * len(listed.ends_us), [end_us] * digest.device_count
    found = []
    for i in reversed(listed.order):
        group = listed.groups[i]
        latest = min(free_us[d] for d in group)
        for s in digest.tasks[i].successors:
            latest = min(latest, start_us[s])
        if latest - listed.ends_us[i] <= least_us:
            found.append(i)
        start_us[i] = latest - digest.duration_us(i, group)
        for d in group:
            free_us[d] = start_us[i]
    return found
