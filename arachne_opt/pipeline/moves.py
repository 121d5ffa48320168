"""What has to move when a training goes on under another plan; knows no torch.

Weights move to all who hold them under the new plan, optimizer state to its owners. A *place* is a
device to the planner and a process to the runtime. What a place has already stays; the rest comes
from the same node where it can, else from the place that has sent least so far. Who has received
something sends it on, in a later round, so that nobody sends one thing to all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from arachne_opt.pipeline.cells import (
    Box,
    Key,
    Model,
    covers,
    make_bundles,
    parts_of,
    size,
    split,
)
from arachne_opt.pipeline.layout import Layout

# Of each parameter, the boxes that each place holds.
Held = Mapping[Key, Mapping[int, tuple[Box, ...]]]


class Move(NamedTuple):
    """A box that a place needs.

    Args:
        source: the place that gives it: itself where it has it, None where nobody has it.
        round: when the source has it: 0 from the beginning, else after as many rounds.
    """

    key: Key
    box: Box
    source: int | None
    target: int
    round: int

    @property
    def values(self) -> int:
        """Number of values."""
        return size(self.box)


def weights_held(layout: Layout, model: Model, places: Sequence[int]) -> Held:
    """The weights of every place; copies of tied parameters are one.

    Args:
        layout: the ranks.
        model: how parameters are cut.
        places: of each rank; those below 0 are gone.
    """
    found: dict[Key, dict[int, tuple[Box, ...]]] = defaultdict(dict)
    for member in layout.members:
        place = places[member.rank]
        for copy, box in parts_of(layout, model, member.rank).items():
            own = found[model.named(copy)]
            if place >= 0 and size(box):
                own[place] = tuple(dict.fromkeys((*own.get(place, ()), box)))
    return found


def state_held(layout: Layout, model: Model, places: Sequence[int], *, zero1: bool) -> Held:
    """The optimizer state of every place."""
    found: dict[Key, dict[int, tuple[Box, ...]]] = defaultdict(dict)
    for bundle in make_bundles(layout, model):
        shards = bundle.shard_boxes(len(bundle.holders) if zero1 else 1)
        for number, rank in enumerate(bundle.holders):
            place = places[rank]
            for cell, box in zip(bundle.cells, shards[number if zero1 else 0], strict=True):
                own = found[cell.key]
                if place >= 0 and size(box):
                    own[place] = (*own.get(place, ()), box)
    return found


def plan_moves(old: Held, new: Held, node_of: Callable[[int], Hashable]) -> tuple[Move, ...]:
    """All boxes that places need under a new plan, with their sources."""
    sent: dict[int, int] = defaultdict(int)
    found = []
    for key, wanted in new.items():
        had = old.get(key, {})
        boxes = [b for held in (wanted, had) for own in held.values() for b in own]
        for cell in split(boxes):
            rounds = dict.fromkeys(_holding(had, cell), 0)
            for target in _holding(wanted, cell):
                source = _source(rounds, target, node_of, sent)
                since = 0 if source is None else rounds[source]
                found.append(Move(key, cell, source, target, since))
                if source is not None and source != target:
                    sent[source] += size(cell)
                    rounds[target] = since + 1
    return tuple(found)


def _source(
    rounds: Mapping[int, int],
    target: int,
    node_of: Callable[[int], Hashable],
    sent: Mapping[int, int],
) -> int | None:
    """Who gives a box to a place, among those that have it or will have it."""
    if target in rounds or not rounds:
        return target if rounds else None
    near = [p for p in rounds if node_of(p) == node_of(target)]
    return min(near or rounds, key=lambda p: (sent[p], rounds[p], p))


def _holding(held: Mapping[int, tuple[Box, ...]], cell: Box) -> list[int]:
    return sorted(p for p, boxes in held.items() if any(covers(b, cell) for b in boxes))
