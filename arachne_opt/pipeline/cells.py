"""How parameters are cut over all ranks of a plan; knows no torch.

Stages cut a parameter by their own tensor- and expert-parallel degrees. Together their cuts divide
it into *cells*: each lies whole on each of its holders. The gradient of a cell is the sum over its
holders, in whatever stages, replicas and pipelines they are; so is that of tied parameters, whose
copies are one parameter here. Cells with the same holders travel together as a *bundle*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import NamedTuple, Protocol

from arachne_opt.pipeline.layout import Layout

# Begin and end on each axis of a whole parameter.
Box = tuple[tuple[int, int], ...]


class Key(NamedTuple):
    """A parameter of the model: its row, and its name in the row."""

    row: int
    name: str


class Parameter(Protocol):
    """How one parameter is cut; see ``models.parameters.RowParameter``."""

    @property
    def name(self) -> str:
        """In the module of its row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole."""

    @property
    def tp_axis(self) -> int | None:
        """Axis that tensor parallelism cuts; None where each member holds it whole."""

    @property
    def decays(self) -> bool:
        """Whether weight decay applies."""

    def part(
        self, tp: int = 1, tp_rank: int = 0, ep: int = 1, ep_rank: int = 0
    ) -> tuple[slice, ...]:
        """What one rank holds."""


class Model(NamedTuple):
    """What the runtime needs to know of a model's parameters.

    Args:
        rows: the parameters of each row.
        tied: copies of one parameter; the first names it.
    """

    rows: tuple[tuple[Parameter, ...], ...]
    tied: tuple[Key, ...] = ()

    def named(self, key: Key) -> Key:
        """The name of a parameter, the same for all copies of a tied one."""
        return self.tied[0] if key in self.tied else key

    def whole_on_members(self) -> frozenset[Key]:
        """Parameters that every member of a tensor-parallel group holds whole."""
        return frozenset(
            Key(row, p.name)
            for row, parameters in enumerate(self.rows)
            for p in parameters
            if p.tp_axis is None
        )

    def shape(self, key: Key) -> tuple[int, ...]:
        """The shape of a whole parameter."""
        return next(p.shape for p in self.rows[key.row] if p.name == key.name)


class Cell(NamedTuple):
    """A part of a parameter that no rank cuts further.

    Args:
        axis: along which shards of the optimizer state are cut: that of tensor parallelism, else
            the longest.
    """

    key: Key
    box: Box
    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Cells that the same ranks hold.

    Args:
        holders: their ranks, ascending.
    """

    holders: tuple[int, ...]
    decays: bool
    cells: tuple[Cell, ...]

    def shard_boxes(self, shards: int) -> tuple[tuple[Box, ...], ...]:
        """Each cell cut into so many boxes, for each shard."""
        cuts = [cut(cell.box, cell.axis, shards) for cell in self.cells]
        return tuple(zip(*cuts, strict=True))


def parts_of(layout: Layout, model: Model, rank: int) -> dict[Key, Box]:
    """The part of each parameter that a rank holds, copies under names of their own."""
    m = layout.members[rank]
    return {
        Key(row, p.name): box_of(p.part(m.kind.tp, m.tp_index, m.kind.ep, m.ep_index))
        for row in m.rows
        for p in model.rows[row]
    }


def make_bundles(layout: Layout, model: Model) -> tuple[Bundle, ...]:
    """All cells of a model, bundled; in the order in which backwards complete them."""
    boxes = _boxes_by_key(layout, model)
    known = {Key(r, p.name): p for r, row in enumerate(model.rows) for p in row}
    bundles: dict[tuple[tuple[int, ...], bool], list[Cell]] = {}
    for key in sorted(boxes, key=lambda k: -k.row):  # stable: by place inside a row
        for box in split(boxes[key].values()):
            holders = tuple(sorted({r for (r, _), b in boxes[key].items() if covers(b, box)}))
            cell = Cell(key, box, _shard_axis(known[key]))
            bundles.setdefault((holders, known[key].decays), []).append(cell)
    return tuple(
        Bundle(holders=holders, decays=decay, cells=tuple(cells))
        for (holders, decay), cells in bundles.items()
    )


def held_cells(
    bundles: Sequence[Bundle], parts: Mapping[Key, Box], model: Model
) -> dict[Cell, tuple[Key, ...]]:
    """Of each cell that a rank holds, the copies in which it has it."""
    by_name: dict[Key, list[Key]] = {}
    for copy in parts:
        by_name.setdefault(model.named(copy), []).append(copy)
    found = {}
    for cell in (c for b in bundles for c in b.cells if c.key in by_name):
        copies = tuple(k for k in by_name[cell.key] if covers(parts[k], cell.box))
        if copies:
            found[cell] = copies
    return found


def box_of(slices: Iterable[slice]) -> Box:
    """Slices as a box."""
    return tuple((s.start, s.stop) for s in slices)


def size(box: Box) -> int:
    """Number of values in a box."""
    return prod(end - begin for begin, end in box)


def covers(outer: Box, inner: Box) -> bool:
    """Whether a box lies in another."""
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """Where a box lies in a tensor that holds an outer one."""
    return tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(box, outer, strict=True))


def cut(box: Box, axis: int, shards: int) -> tuple[Box, ...]:
    """A box in so many parts along an axis; the last ones may be smaller or empty."""
    begin, end = box[axis]
    wide = -(-(end - begin) // shards)
    edges = [min(end, begin + n * wide) for n in range(shards + 1)]
    return tuple((*box[:axis], (edges[n], edges[n + 1]), *box[axis + 1 :]) for n in range(shards))


def split(boxes: Iterable[Box]) -> Iterator[Box]:
    """The parts into which boxes cut each other."""
    different = set(boxes)
    axes = zip(*different, strict=True)
    intervals = [_intervals({edge for span in axis for edge in span}) for axis in axes]
    for cell in product(*intervals):
        if any(covers(box, cell) for box in different):
            yield cell


def _boxes_by_key(layout: Layout, model: Model) -> dict[Key, dict[tuple[int, Key], Box]]:
    """Of each parameter, what every rank holds of each copy."""
    found: dict[Key, dict[tuple[int, Key], Box]] = {}
    for row, parameters in enumerate(model.rows):
        for p in parameters:
            copy = Key(row, p.name)
            held = found.setdefault(model.named(copy), {})
            for ranks in layout.holders(row):
                for t, rank in enumerate(ranks):
                    m = layout.members[rank]
                    held[rank, copy] = box_of(p.part(m.kind.tp, t, m.kind.ep, m.ep_index))
    return found


def _shard_axis(parameter: Parameter) -> int:
    if parameter.tp_axis is not None:
        return parameter.tp_axis
    return parameter.shape.index(max(parameter.shape))


def _intervals(edges: set[int]) -> Sequence[tuple[int, int]]:
    order = sorted(edges)
    return list(pairwise(order))
