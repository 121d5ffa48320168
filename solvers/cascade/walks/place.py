"""Where a walk is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arachne_opt.solvers.cascade.walks.choice import Choice


class Place(NamedTuple):
    """A choice for some tasks, with the makespan and the sum of ends of its list schedule."""

    choice: Choice
    order: Sequence[int]
    makespan_us: int
    sum_us: int

    @property
    def key(self) -> tuple[int, int]:
        """What is minimised, in order."""
        return self.makespan_us, self.sum_us
