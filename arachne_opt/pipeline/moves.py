"""What has to move between processes when a training goes on under another plan; knows no torch.

Weights move to all who hold them under the new plan, optimizer state to its owners. What a process
has already stays; the rest comes from the same node where it can, and from the process that has
sent least so far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from arachne_opt.errors import RunError
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

# Of each parameter, the boxes that each process holds.
Held = Mapping[Key, Mapping[int, tuple[Box, ...]]]


class Move(NamedTuple):
    """A box that a process needs, and the one that gives it; the same one where it has it."""

    key: Key
    box: Box
    source: int
    target: int

    @property
    def values(self) -> int:
        """Number of values."""
        return size(self.box)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes that went between processes.

    Args:
        network_bytes: from node to node.
        inside_bytes: inside nodes.
    """

    network_bytes: int
    inside_bytes: int


def weights_held(layout: Layout, model: Model, seats: tuple[int, ...]) -> Held:
    """The weights of every process; copies of tied parameters are one."""
    found: dict[Key, dict[int, tuple[Box, ...]]] = defaultdict(dict)
    for member in layout.members:
        process = seats[member.rank]
        for copy, box in parts_of(layout, model, member.rank).items():
            own = found[model.named(copy)]
            own[process] = tuple(dict.fromkeys((*own.get(process, ()), box)))
    return found


def state_held(layout: Layout, model: Model, seats: tuple[int, ...], *, zero1: bool) -> Held:
    """The optimizer state of every process."""
    found: dict[Key, dict[int, tuple[Box, ...]]] = defaultdict(dict)
    for bundle in make_bundles(layout, model):
        processes = sorted(seats[r] for r in bundle.holders)
        shards = bundle.shard_boxes(len(processes) if zero1 else 1)
        for place, process in enumerate(processes):
            for cell, box in zip(bundle.cells, shards[place if zero1 else 0], strict=True):
                if size(box):
                    own = found[cell.key]
                    own[process] = (*own.get(process, ()), box)
    return found


def plan_moves(old: Held, new: Held, node_of: Callable[[int], Hashable]) -> tuple[Move, ...]:
    """All boxes that processes need under a new plan, with their sources.

    Raises:
        RunError: no process is left that holds some values.
    """
    sent: dict[int, int] = defaultdict(int)
    found = []
    for key, wanted in new.items():
        had = old.get(key, {})
        boxes = [b for held in (wanted, had) for own in held.values() for b in own]
        for cell in split(boxes):
            givers = _holding(had, cell)
            for target in _holding(wanted, cell):
                if not givers:
                    what = f"no process holds {key.name} of row {key.row} any more"
                    raise RunError(what, hint="the newest checkpoint")
                source = target if target in givers else _giver(givers, target, node_of, sent)
                if source != target:
                    sent[source] += size(cell)
                found.append(Move(key, cell, source, target))
    return tuple(found)


def _holding(held: Mapping[int, tuple[Box, ...]], cell: Box) -> list[int]:
    return sorted(p for p, boxes in held.items() if any(covers(b, cell) for b in boxes))


def _giver(
    givers: list[int],
    target: int,
    node_of: Callable[[int], Hashable],
    sent: Mapping[int, int],
) -> int:
    near = [p for p in givers if node_of(p) == node_of(target)]
    return min(near or givers, key=lambda p: (sent[p], p))
