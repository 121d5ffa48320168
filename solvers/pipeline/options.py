"""Options of a stage at a given batch, and what they take of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np

from arachne_opt.costs.pipeline.base import Ints, PipelineCosts
from arachne_opt.pipeline.plan import ReplicaKind
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.template import ReplicaBlock
from arachne_opt.solvers.pipeline.restrictions import FREE, Restrictions, Spread

# Types share a stage only where their speeds are this close: the slower one sets the pace.
_MIXED_SPEED_RATIO = 1.35


@dataclass(frozen=True, slots=True)
class StageOption:
    """Replicas of a stage and the samples that each takes of a micro-batch."""

    blocks: tuple[ReplicaBlock, ...]
    microbatch: int
    recompute: bool = False

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        return sum(b.count for b in self.blocks)

    @property
    def ring(self) -> list[ReplicaKind]:
        """Kinds of all replicas in their order."""
        return [b.kind for b in self.blocks for _ in range(b.count)]


class Atom(NamedTuple):
    """What all replicas of a stage of one kind do."""

    kind: ReplicaKind
    microbatch: int
    recompute: bool


class Space:
    """Device limits of a problem, and which kinds and micro-batches there are.

    A limit says how many devices groups of at least some width may take of a type in a zone: all
    nodes cut into groups of that width. For widths that divide each other these limits are exact.
    """

    def __init__(
        self, problem: PipelineProblem, costs: PipelineCosts, restrictions: Restrictions = FREE
    ) -> None:
        self.problem = problem
        self.restrictions = restrictions
        self.costs = costs
        kinds = costs.kinds
        self.places = tuple(dict.fromkeys((k.device_type, k.zone) for k in kinds))
        rows = sorted({(self.place_of(k), node_width(k)) for k in kinds} | self._single_devices())
        self._limit_place = np.array([place for place, _ in rows])
        self._limit_width = np.array([width for _, width in rows])
        self.limits: Ints = np.array([self._room(place, width) for place, width in rows])

    @cached_property
    def kinds(self) -> tuple[ReplicaKind, ...]:
        """All kinds whose experts may be spread as they are."""
        kinds, spread = self.costs.kinds, self.restrictions.spread
        if spread is Spread.ANY:
            return kinds
        if spread is Spread.NONE:
            return tuple(k for k in kinds if k.ep == 1)
        inside = [k for k in kinds if k.ep == 1 or k.ep_local]
        widest = {(k.device_type, k.zone, k.tp): k for k in sorted(inside, key=lambda k: k.ep)}
        return tuple(widest.values())

    @cached_property
    def atoms(self) -> tuple[Atom, ...]:
        """All kinds with their micro-batches, and with recomputation where it is allowed."""
        modes = (False, True) if self.problem.options.recomputation else (False,)
        return tuple(
            Atom(k, m, recompute)
            for k in self.kinds
            for m in self.costs.microbatches(k)
            for recompute in modes
        )

    @property
    def in_stages(self) -> int:
        """Most stages of a pipeline."""
        limit = self.problem.options.max_stages or self.costs.row_count
        devices = sum(n.device_count for n in self.problem.cluster.nodes)
        return min(limit, self.costs.row_count, devices)

    def place_of(self, kind: ReplicaKind) -> int:
        """Number of the type and zone of a kind."""
        return self.places.index((kind.device_type, kind.zone))

    def usage(self, blocks: Iterable[ReplicaBlock]) -> Ints:
        """What replicas take of each limit."""
        used = np.zeros(len(self.limits), dtype=np.int64)
        for b in blocks:
            mine = self._limit_place == self.place_of(b.kind)
            used += mine * (self._limit_width <= node_width(b.kind)) * b.kind.tp * b.count
        return used

    def devices(self, place: int) -> int:
        """All devices of a type in a zone."""
        return int(self.limits[self._row(place)])

    def room_of_width(self) -> dict[tuple[int, int], int]:
        """Devices that groups of at least a width may take, by place and width."""
        pairs = zip(self._limit_place.tolist(), self._limit_width.tolist(), strict=True)
        return dict(zip(pairs, self.limits.tolist(), strict=True))

    def device_rows(self) -> Ints:
        """For each place the limit that counts all its devices."""
        return np.array([self._row(place) for place in range(len(self.places))])

    def options(self, batch: int) -> list[StageOption]:
        """All options of stages when a micro-batch has ``batch`` samples over all replicas."""
        found = []
        for kind, m, recompute in self.atoms:
            count, rest = divmod(batch, m)
            if rest == 0 and count % kind.ep == 0:
                blocks = (ReplicaBlock(kind=kind, count=count),)
                if (self.usage(blocks) <= self.limits).all():
                    found.append(StageOption(blocks, m, recompute))
        if self.restrictions.pure_stages:
            return found
        return [*found, *self._mixed(batch)]

    def _mixed(self, batch: int) -> Iterator[StageOption]:
        """Options of two types with the micro-batch, at splits that fill one of the types."""
        dense = [a for a in self.atoms if a.kind.ep == 1 and batch % a.microbatch == 0]
        for (a, m, recompute), (b, *mode) in combinations(dense, 2):
            if mode != [m, recompute] or self.place_of(a) == self.place_of(b):
                continue
            if not self._alike(a, b, m):
                continue
            count = batch // m
            for split in self._splits(a, b, count):
                blocks = (
                    ReplicaBlock(kind=a, count=split),
                    ReplicaBlock(kind=b, count=count - split),
                )
                if (self.usage(blocks) <= self.limits).all():
                    yield StageOption(blocks, m, recompute)

    def _alike(self, a: ReplicaKind, b: ReplicaKind, m: int) -> bool:
        slow, fast = sorted(float(self.costs.work_prefix_s(k, m)[-1]) for k in (a, b))[::-1]
        return slow <= _MIXED_SPEED_RATIO * fast

    def _splits(self, a: ReplicaKind, b: ReplicaKind, count: int) -> list[int]:
        """Replicas of kind a: as many as there may be, half of that, or what b leaves."""
        most_a = self.devices(self.place_of(a)) // a.tp
        most_b = self.devices(self.place_of(b)) // b.tp
        wanted = {most_a, most_a // 2, count - most_b, count - most_b // 2}
        return sorted(s for s in wanted if 0 < s < count)

    def _single_devices(self) -> set[tuple[int, int]]:
        return {(place, 1) for place in range(len(self.places))}

    def _row(self, place: int) -> int:
        where = (self._limit_place == place) & (self._limit_width == 1)
        return int(np.flatnonzero(where)[0])

    def _room(self, place: int, width: int) -> int:
        name, zone = self.places[place]
        nodes = (n for n in self.problem.nodes_of_type[name] if n.zone == zone)
        return sum(n.device_count // width * width for n in nodes)


def node_width(kind: ReplicaKind) -> int:
    """Devices that must share a node."""
    return kind.tp * (kind.ep if kind.ep_local else 1)
