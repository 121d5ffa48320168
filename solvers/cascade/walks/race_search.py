"""A search by races of walks that can be gone on with, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from arachne_opt.solvers.cascade.schedule import Schedule
from arachne_opt.solvers.cascade.walks.choice import Choice
from arachne_opt.solvers.cascade.walks.cooling import Heat, Progress
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US
from arachne_opt.solvers.cascade.walks.racing import STARTS, raced
from arachne_opt.solvers.cascade.walks.walker import Walker, Walks

_HEAT = Heat(hot=0.003, cold=0.0003)


class RaceSearch:
    """Races of what is drawn, and walks from the best so far, in turn.

    Args:
        walks: of the problem.
        walker: one of these.
        draw: makes what a walk begins with.
    """

    def __init__(self, walks: Walks, walker: Walker, draw: Callable[[], Choice]) -> None:
        self._walks, self._walker, self._draw = walks, walker, draw
        self.placed_per_unit = walker.placed_per_unit
        self._turns = 0

    @property
    def beside(self) -> bool:
        """Whether other threads can search meanwhile."""
        return self._walks.beside

    @property
    def makespan_us(self) -> int:
        """Of the best so far; at least one has to be made."""
        return self._walker.best.makespan_us

    @property
    def schedule(self) -> Schedule:
        """The best so far; at least one has to be made."""
        return self._walks.schedule(self._walker.best)

    def begin(self) -> None:
        """Finds a first schedule."""
        self._walker.begin(self._draw(), ANY_US)

    def know(self, schedule: Schedule) -> None:
        """Takes a schedule as one that was found."""
        self._walker.begin(self._walks.table.of_schedule(schedule), ANY_US)

    def turn(self, progress: Progress) -> Iterator[None]:
        """A race of what is drawn, in every second turn a walk from the best; each step yields.

        Args:
            progress: told how many tasks were placed since it was last asked; gives the share of
                the turn that is over.
        """
        starts: Iterable[Choice]
        if self._turns % 2:
            starts = [self._walker.best.choice]
        else:
            starts = (self._draw() for _ in range(STARTS))
        self._turns += 1
        yield from (None for _ in raced(self._walker, starts, _HEAT, progress))
