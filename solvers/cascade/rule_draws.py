"""What walks begin with by the rules of list scheduling."""

from __future__ import annotations

import random

from arachne_opt.solvers.cascade.bounds import cascade_fronts
from arachne_opt.solvers.cascade.digest import Digest
from arachne_opt.solvers.cascade.list_schedule import (
    RULES,
    modes_for_deadline,
    priorities,
)
from arachne_opt.solvers.cascade.walks.choice import Choice, ModeTable

_LOOSEST = 1.3  # deadlines, as a multiple of the bound


class RuleDraws:
    """Draws deadlines and rules: the cheapest degrees for the one, in the order of the other."""

    def __init__(self, digest: Digest, table: ModeTable, seed: int) -> None:
        self._digest, self._table = digest, table
        self._chance = random.Random(seed)
        self._fronts = cascade_fronts(digest)

    def choice(self, bound_us: int) -> Choice:
        """A choice, given a lower bound of the makespan."""
        deadline_us = round(bound_us * self._chance.uniform(1.0, _LOOSEST))
        modes = modes_for_deadline(self._digest, self._fronts, deadline_us)
        rule = self._chance.choice(RULES)
        return self._table.choice(modes, priorities(self._digest, modes, rule))
