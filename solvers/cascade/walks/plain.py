"""Walks among list schedules in Python."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.walks.chance import Chance
from arachne_opt.solvers.cascade.walks.changes import Changes
from arachne_opt.solvers.cascade.walks.choice import FREE, Choice, ModeTable
from arachne_opt.solvers.cascade.walks.place import Place
from arachne_opt.solvers.cascade.walks.quick_list import Listed, QuickList


class PlainWalker:
    """The walker that needs nothing but Python; see ``Walker``."""

    stride = 1
    placed_per_unit = 100_000

    def __init__(
        self,
        digest: Digest,
        table: ModeTable,
        seed: int,
        odds: Sequence[Sequence[float]] | None = None,
        nodes: Sequence[int] | None = None,
    ) -> None:
        self._table = table
        self._lists = QuickList(digest, nodes)
        self._chance = Chance(seed)
        self._changes = Changes(digest, table, self._lists.nodes, self._chance, odds)
        self._now: tuple[Choice, Listed] | None = None
        self._best: tuple[Choice, Listed] | None = None

    @property
    def best(self) -> Place:
        """See ``Walker``."""
        return _place(self._best)

    @property
    def now(self) -> Place:
        """See ``Walker``."""
        return _place(self._now)

    def begin(self, choice: Choice, most_us: int, tasks: Sequence[int] | None = None) -> int | None:
        """See ``Walker``."""
        like, choice = None if self._now is None else self._now[1], choice.copy()
        for i, mode in enumerate(self._table.modes(choice.picks)):
            if not self._lists.fits(mode, choice.groups[i]):
                choice.groups[i] = FREE
        listed = self._decoded(choice, most_us, like, tasks)
        if listed is None:
            return None
        self._take(choice, listed)
        return listed.makespan_us

    def walk(self, steps: int, heat: float) -> None:
        """See ``Walker``."""
        for _ in range(steps):
            assert self._now is not None
            choice, listed = self._now
            worse_us = -math.log(1 - self._chance.unit()) * heat * listed.makespan_us
            near = self._changes.near(choice, listed)
            if near is None:
                continue
            most_us = round(listed.makespan_us + worse_us)
            made = self._decoded(near, most_us, listed, sorted(listed.order))
            if made is not None:
                self._take(near, made)

    def task(self) -> int:
        """See ``Walker``."""
        assert self._now is not None
        return self._changes.task(self._now[1])

    def _decoded(
        self, choice: Choice, most_us: int, like: Listed | None, tasks: Sequence[int] | None
    ) -> Listed | None:
        modes = self._table.modes(choice.picks)
        return self._lists.decode(
            modes, choice.priority, most_us, like, tasks, choice.sites, choice.groups
        )

    def _take(self, choice: Choice, listed: Listed) -> None:
        self._now = choice, listed
        if self._best is None or listed.key < self._best[1].key:
            self._best = self._now


def _place(known: tuple[Choice, Listed] | None) -> Place:
    assert known is not None
    choice, listed = known
    return Place(choice, listed.order, *listed.key)
