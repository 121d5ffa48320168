"""A walk among list schedules: in C where that was built, else in Python, with equal results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.schedule import Run, Schedule, left_shift
from arachne_opt.solvers.cascade.walks.choice import Choice, ModeTable
from arachne_opt.solvers.cascade.walks.native import NativeWalker, native_problem
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.solvers.cascade.walks.plain import PlainWalker
from arachne_opt.solvers.cascade.walks.quick_list import ANY_US, QuickList

MOST_BESIDE = 15
"""Threads that walk beside one at most: more would keep each other from the interpreter."""


class Walker(Protocol):
    """Changes a choice step by step, and goes on from what is better or hardly worse."""

    stride: int
    """Steps at a time that are quick enough to ask for the time after them."""

    placed_per_unit: int
    """Placed tasks that count as one unit of deterministic work."""

    @property
    def best(self) -> Place:
        """The best since the walker was made; it has to have begun."""

    @property
    def now(self) -> Place:
        """Where the walk is; it has to have begun."""

    def begin(self, choice: Choice, most_us: int, tasks: Sequence[int] | None = None) -> int | None:
        """Goes on from a choice; its makespan, None and no change where that passes ``most_us``.

        ``tasks`` are those of some cascades, in rising order; None for all.
        """

    def walk(self, steps: int, heat: float) -> None:
        """Goes so many steps; ``heat`` is how much worse, in parts of the makespan, may be kept."""

    def task(self) -> int:
        """A task of where the walk is, often one that delays the end."""


class Walks:
    """Makes walkers of one problem without pins."""

    def __init__(self, digest: Digest) -> None:
        assert not digest.problem.pinned
        self._digest = digest
        self._lists = QuickList(digest)
        self.table = ModeTable(digest)
        self._native = native_problem(digest, self.table)

    def schedule(self, place: Place) -> Schedule:
        """The schedule of a place with all tasks, its groups as early as they can be."""
        return left_shift(self._digest, self.runs(place))

    def runs(self, place: Place, nodes: Sequence[int] | None = None) -> list[Run]:
        """The tasks of a place in order, with their devices.

        Args:
            place: of a walker of this problem.
            nodes: what its walker was given.
        """
        lists = self._lists if nodes is None else QuickList(self._digest, nodes)
        picks, priority, sites, groups = place.choice
        modes, tasks = self.table.modes(picks), sorted(place.order)
        listed = lists.decode(modes, priority, ANY_US, None, tasks, sites, groups)
        assert listed is not None  # any time is enough
        assert listed.key == place.key  # both walkers make the same list schedules
        return lists.runs(listed)

    @property
    def beside(self) -> bool:
        """Whether walkers of several threads walk at the same time."""
        return self._native is not None

    def walker(
        self,
        seed: int,
        odds: Sequence[Sequence[float]] | None = None,
        nodes: Sequence[int] | None = None,
    ) -> Walker:
        """A walker.

        Args:
            seed: of its chances.
            odds: of the drawn modes of each task, added up from the first on; None for equal odds.
            nodes: that it may use, in rising order; None for all.
        """
        if self._native is None:
            return PlainWalker(self._digest, self.table, seed, odds, nodes)
        rows = range(len(self._digest.nodes)) if nodes is None else nodes
        return NativeWalker(self._native, seed, odds, rows)
