"""What the devices of a plan hold, row by row, as far as the planner's tables tell.

Tensor parallelism cuts some parameters of a row (matrices); others (norms) lie whole on every
member; experts are cut by both degrees. Rows that the same replicas hold are one entry, whose boxes
are counted in fine units of the whole, so that degrees and shards of two plans meet without
fractions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import lcm
from typing import NamedTuple

from arachne_opt.pipeline.cells import Model
from arachne_opt.pipeline.cluster_change import NodeKey
from arachne_opt.pipeline.layout import Layout
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.rows import RowModel


class Device(NamedTuple):
    """A device as the planner tells them apart: by its number on a node."""

    node: NodeKey
    slot: int


class Shard(NamedTuple):
    """A row as one replica holds it: its tensor-parallel degree, and the spread of its experts."""

    row: int
    tp: int
    ep: int


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """A plan on its devices.

    Args:
        devices: of each rank; None where its node is gone.
        zero1: optimizer state is shared over all holders of a parameter.
    """

    layout: Layout
    devices: tuple[Device | None, ...]
    zero1: bool

    @cached_property
    def by_node(self) -> dict[NodeKey, Counter[Shard]]:
        """How many replicas of each node hold a row in a way."""
        found: dict[NodeKey, Counter[Shard]] = {}
        for member, device in zip(self.layout.members, self.devices, strict=True):
            if device is not None and member.tp_index == 0:
                kind = member.kind
                shards = [Shard(row, kind.tp, kind.ep) for row in member.rows]
                found.setdefault(device.node, Counter()).update(shards)
        return found


def holdings(plan: PipelinePlan, nodes: Mapping[NodeKey, NodeKey] | None = None) -> Holdings:
    """What the devices of a placed plan hold; those of a node go by the order of its ranks.

    Args:
        plan: with a node for every replica.
        nodes: new names of the nodes that are left; all of them under their own unless given.
    """
    layout, taken = Layout(plan), Counter[NodeKey]()
    devices: list[Device | None] = []
    for member in layout.members:
        assert member.node is not None  # asked for placed plans only
        old = member.kind.device_type, member.node
        node = old if nodes is None else nodes.get(old)
        devices.append(None if node is None else Device(node, taken[old]))
        taken[old] += 1
    return Holdings(layout=layout, devices=tuple(devices), zero1=plan.zero1)


def settle(held: Holdings, plan: PipelinePlan) -> Holdings:
    """A placed plan on devices, each rank on the one of its node that has most of its rows."""
    layout = Layout(plan)
    before: dict[NodeKey, list[tuple[Device, int]]] = {}
    for rank, device in enumerate(held.devices):
        if device is not None:
            before.setdefault(device.node, []).append((device, rank))
    devices: list[Device | None] = [None] * layout.world_size
    by_node: dict[NodeKey, list[int]] = {}
    for member in layout.members:
        assert member.node is not None  # asked for placed plans only
        by_node.setdefault((member.kind.device_type, member.node), []).append(member.rank)
    for node, ranks in by_node.items():
        old = before.get(node, [])
        common = [
            (_common(held.layout, rank, layout, mine), -mine, -device.slot, device)
            for device, rank in old
            for mine in ranks
        ]
        taken: set[Device] = set()
        for rows, mine, _, device in sorted(common, reverse=True):
            if rows and devices[-mine] is None and device not in taken:
                devices[-mine] = device
                taken.add(device)
        free = (d for n in range(len(old) + len(ranks)) if (d := Device(node, n)) not in taken)
        for rank in ranks:
            if devices[rank] is None:
                devices[rank] = next(free)
    return Holdings(layout=layout, devices=tuple(devices), zero1=plan.zero1)


class Cut(NamedTuple):
    """One sort of a row's parameters in fine units; see ``cells.Parameter``."""

    name: str
    shape: tuple[int, ...]
    tp_axis: int | None
    ep_axis: int | None = None
    decays: bool = True

    def part(
        self, tp: int = 1, tp_rank: int = 0, ep: int = 1, ep_rank: int = 0
    ) -> tuple[slice, ...]:
        """What one rank holds."""
        bounds = [slice(0, units) for units in self.shape]
        for axis, parts, place in ((self.tp_axis, tp, tp_rank), (self.ep_axis, ep, ep_rank)):
            if axis is not None:
                wide = self.shape[axis] // parts
                bounds[axis] = slice(place * wide, (place + 1) * wide)
        return tuple(bounds)


MATRICES, WHOLE, EXPERTS = "matrices", "whole", "experts"


class Entry(NamedTuple):
    """Rows that the same replicas hold, and how many values one unit of each sort stands for."""

    rows: range
    values: dict[str, Fraction]


@dataclass(frozen=True, kw_only=True)
class Units:
    """Fine units in which both of two plans are whole numbers.

    Args:
        model: with one entry in the first row of each run of rows, none in the others.
        entries: by their first row.
    """

    model: Model
    entries: dict[int, Entry]


def units_of(model: RowModel, one: Layout, two: Layout) -> Units:
    """Units for two layouts of a model."""
    cuts = {r.start for layout in (one, two) for r in layout.segments()}
    width = lcm(*(_finest(layout) for layout in (one, two)))
    experts = lcm(*(m.kind.ep for layout in (one, two) for m in layout.members))
    sorts = [Cut(MATRICES, (width,), 0), Cut(WHOLE, (width,), None)]
    if model.experts is not None:
        sorts.append(Cut(EXPERTS, (experts, width), 1, 0))
    rows: list[tuple[Cut, ...]] = [()] * model.row_count
    entries = {}
    for begin, end in pairwise([*sorted(cuts), model.row_count]):
        rows[begin] = tuple(sorts)
        matrices, whole, of_experts = _parameters(model, range(begin, end))
        values = {
            MATRICES: matrices / width,
            WHOLE: whole / width,
            EXPERTS: of_experts / (width * experts),
        }
        entries[begin] = Entry(range(begin, end), values)
    return Units(model=Model(rows=tuple(rows)), entries=entries)


def _finest(layout: Layout) -> int:
    """A number that tensor-parallel degrees and shards of the optimizer state divide."""
    counts = {1}
    if layout.plan.zero1:
        for run in layout.segments():
            replicas = layout.holders(run.start)
            groups = sum(Fraction(1, layout.members[r[0]].kind.ep) for r in replicas)
            counts |= {len(replicas), sum(map(len, replicas)), int(groups)}
    return lcm(*(m.kind.tp for m in layout.members)) * lcm(*counts)


def _parameters(model: RowModel, rows: range) -> tuple[Fraction, Fraction, Fraction]:
    """Values of all rows that are cut, that lie whole on each member, and those of experts.

    Tables of two degrees tell them apart: a member of ``tp`` holds cut / tp + whole.
    """
    low, high = min(model.sizes_by_tp), max(model.sizes_by_tp)
    few, many = model.sizes_by_tp[low], model.sizes_by_tp[high]
    cut = whole = experts = Fraction(0)
    for row in rows:
        own, part = few.parameters[row], many.parameters[row]
        both = Fraction(own * low)
        if low != high:
            both = min(both, Fraction((own - part) * low * high, high - low))
        cut, whole = cut + both, whole + own - both / low
        experts += few.expert_parameters[row] * low if few.expert_parameters else 0
    return cut, whole, experts


def _common(one: Layout, rank: int, two: Layout, mine: int) -> float:
    """How much of its rows a rank finds where another was, in whole rows."""
    a, b = one.members[rank], two.members[mine]
    begin = max(a.tp_index / a.kind.tp, b.tp_index / b.kind.tp)
    end = min((a.tp_index + 1) / a.kind.tp, (b.tp_index + 1) / b.kind.tp)
    return len(set(a.rows) & set(b.rows)) * max(0.0, end - begin)
