"""Walks that cool down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from arachne_opt.solvers.cascade.walks.choice import Choice
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.walker import Walker


class Heat(NamedTuple):
    """How much worse, in parts of the makespan, is gone on from: at first and at last."""

    hot: float
    cold: float

    def at(self, share: float) -> float:
        """The heat after a share of the walk."""
        ratio: float = (self.cold / self.hot) ** share
        return self.hot * ratio


# Takes the tasks placed since the last call, and gives the share of a walk that is over.
Progress = Callable[[int], float]


def cooled(walker: Walker, start: Choice, heat: Heat, progress: Progress) -> Iterator[Place]:
    """Walks from a choice until ``progress`` reaches 1; yields the best after every stride."""
    walker.begin(start, ANY_US)
    placed = 0
    while (share := progress(placed)) < 1:
        walker.walk(walker.stride, heat.at(max(0.0, share)))
        placed = walker.stride * len(start.picks)
        yield walker.best
