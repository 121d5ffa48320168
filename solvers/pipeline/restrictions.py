"""What the search may be forbidden, to see what each freedom is worth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Spread(StrEnum):
    """How the experts of a model may be spread over replicas."""

    ANY = "any"  # over any number of them, inside a node or across nodes
    NODE = "node"  # over as many as a node holds
    NONE = "none"  # every replica holds all experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Restrictions:
    """Freedoms that are taken away; none by default.

    Args:
        even_layers: every stage of a pipeline has the same number of rows, as far as it divides.
        one_tp: all replicas of a device type have one tensor-parallel degree.
        pure_stages: every stage is of one device type.
        equal_dp: all stages of a pipeline have the same number of replicas.
        spread: of experts; of no matter to a dense model.
    """

    even_layers: bool = False
    one_tp: bool = False
    pure_stages: bool = False
    equal_dp: bool = False
    spread: Spread = Spread.ANY


FREE = Restrictions()

# By what is printed in a table.
ABLATIONS = {
    "even layers only": Restrictions(even_layers=True),
    "one tp per type only": Restrictions(one_tp=True),
    "pure stages only": Restrictions(pure_stages=True),
    "equal dp only": Restrictions(equal_dp=True),
}
