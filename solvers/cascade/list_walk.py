"""Annealing of list schedules from where a schedule has its tasks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from arachne_opt.solvers.cascade.changes import Changes, Choice
from arachne_opt.solvers.cascade.decoder import useful_modes
from arachne_opt.solvers.cascade.digest import Digest, Mode
from arachne_opt.solvers.cascade.quick_list import ANY_US, Listed, QuickList
from arachne_opt.solvers.cascade.schedule import Schedule

# Schedules that much worse, in parts of the makespan, are gone on from: at first and at last.
_HOT, _COLD = 0.004, 0.0003


class HasList(Protocol):
    """What stands for a list schedule."""

    @property
    def listed(self) -> Listed:
        """The list schedule."""


S = TypeVar("S", bound=HasList)


def anneal(
    at: S,
    near: Callable[[S, int], S | None],
    progress: Callable[[], float],
    chance: random.Random,
) -> Iterator[S]:
    """What a walk comes to, one after the other.

    Args:
        at: where it begins.
        near: what is one change away and ends by a time, None where the one drawn does not.
        progress: between 0 and 1, where the walk ends; asked before every step.
        chance: decides what is gone on from.
    """
    while (share := progress()) < 1:
        makespan_us = at.listed.makespan_us
        heat = _HOT * (_COLD / _HOT) ** share
        worse_us = -math.log(1 - chance.random()) * heat * makespan_us
        found = near(at, round(makespan_us + worse_us))
        if found is not None:
            at = found
            yield at


class Walked(NamedTuple):
    """Modes and priorities with their list schedule."""

    choice: Choice
    listed: Listed


class ListWalk:
    """Walks of one problem without pins."""

    def __init__(self, digest: Digest, seed: int) -> None:
        self._digest = digest
        self._chance = random.Random(seed)
        self._lists = QuickList(digest)
        self._changes = Changes(digest, [useful_modes(t) for t in digest.tasks], seed)

    def start(self, schedule: Schedule) -> Walked:
        """The list schedule with the degrees and the order of a schedule."""
        modes: list[Mode] = [task.modes[0] for task in self._digest.tasks]
        for i, devices in schedule.runs:
            mode = self._digest.tasks[i].mode(len(devices), self._digest.kind_of[devices[0]])
            assert mode is not None  # schedules use modes of their tasks
            modes[i] = mode
        choice = Choice(modes, [-us for us in schedule.starts_us])
        listed = self._lists.decode(*choice, ANY_US)
        assert listed is not None  # any time is enough
        return Walked(choice, listed)

    def walk(self, at: Walked, progress: Callable[[], float]) -> Iterator[Walked]:
        """What the walk comes to, see ``anneal``."""
        return anneal(at, self._near, progress, self._chance)

    def schedule(self, walked: Walked) -> Schedule:
        """The schedule with its groups as early as they can be."""
        return self._lists.schedule(walked.listed)

    def _near(self, at: Walked, most_us: int) -> Walked | None:
        choice = self._changes.near(at.choice, at.listed)
        listed = self._lists.decode(*choice, most_us, at.listed)
        return None if listed is None else Walked(choice, listed)
