"""Structural templates of pipelines: which kinds of replica in which order, with quick estimates.

A *structure* is an ordered tuple of kinds (device type, tensor-parallel and expert degree), a type
each. Numbers of stages and replicas, the batch and the layers are not part of it: for each batch
of a small grid the devices are filled in a few ways; the best estimate is that of the structure.

Legend of arrays: n structure, b batch, v way of filling, i block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product

import numpy as np
from numpy.typing import NDArray

from arachne_opt.costs.pipeline.base import Floats, Ints
from arachne_opt.pipeline.plan import PipelinePlan, ReplicaKind
from arachne_opt.solvers.pipeline.options import Space
from arachne_opt.solvers.seeds.chain import Chain
from arachne_opt.solvers.seeds.kinds import TINY, Kinds, kinds_of

Flags = NDArray[np.bool_]
MOST_BLOCKS = 3
# Ways to fill the devices of a structure: the way of each block's kind.
FILLINGS = np.array([[0, 0, 0], [1, 1, 1], [0, 1, 1], [1, 0, 0], [2, 2, 2]])
_KINDS_OF_PAIRS, _KINDS_OF_TRIPLES = 4, 2  # of each place, the quickest alone
_NEVER_S = 1e9
_MAIN_SHARE = 0.04  # of the devices of a pipeline, from which on a type belongs to its structure


@dataclass(frozen=True, slots=True, eq=False)
class Structures:
    """Structures of a problem with the estimate of each at every batch and filling.

    Args:
        blocks: numbers of kinds (shape [n, 3]), -1 where there are fewer blocks.
        estimate_s: seconds of an iteration (shape [n, b, v]), infinite where it cannot be.
        stages: shape [n, b, v, 3].
        parts: what the estimates are made of (shape [n, b, v]), by name.
    """

    kinds: Kinds
    batches: Ints
    blocks: Ints
    estimate_s: Floats
    stages: Ints
    parts: dict[str, Floats]

    @property
    def best_s(self) -> Floats:
        """The best estimate of each structure."""
        found: Floats = self.estimate_s.min(axis=(1, 2))
        return found

    def names(self, n: int) -> tuple[ReplicaKind, ...]:
        """The kinds of a structure in order."""
        return tuple(self.kinds.kinds[k] for k in self.blocks[n] if k >= 0)


def structures_of(space: Space, batches: Ints) -> Structures:
    """All structures of a problem worth a look, at the batches of a grid."""
    kinds = kinds_of(space, batches)
    return _estimated(space, kinds, batches, _blocks(space, kinds))


def structure_of_plan(plan: PipelinePlan) -> tuple[ReplicaKind, ...]:
    """The structure of the pipeline that trains most samples.

    Types in the order of their mean stage, each with the degrees of most of its devices; types
    that hold next to no devices of the pipeline are left out.
    """
    pairs = zip(plan.pipelines, plan.counts, strict=True)
    main = max(pairs, key=lambda pair: pair[0].batch * pair[1])[0]
    devices: dict[ReplicaKind, int] = {}
    position: dict[tuple[str, str], list[float]] = {}
    for i, stage in enumerate(main.stages):
        for replica in stage.replicas:
            kind = replica.kind
            devices[kind] = devices.get(kind, 0) + kind.tp
            position.setdefault((kind.device_type, kind.zone), []).extend([i] * kind.tp)
    least = _MAIN_SHARE * sum(devices.values())
    order = sorted(position, key=lambda place: (np.mean(position[place]), place))
    found = []
    for place in order:
        mine = {k: n for k, n in devices.items() if (k.device_type, k.zone) == place}
        if sum(mine.values()) >= least:
            found.append(max(mine, key=lambda k: (mine[k], k)))
    return tuple(found)


def _blocks(space: Space, kinds: Kinds) -> Ints:
    """Structures of one, two and three types; the more types, the fewer kinds of each."""
    rate = kinds.rate
    by_rate: list[list[int]] = [
        sorted(np.flatnonzero((kinds.place == p) & (rate > 0)).tolist(), key=lambda k: -rate[k])
        for p in range(len(space.places))
    ]
    found: list[tuple[int, ...]] = []
    for size, few in ((1, None), (2, _KINDS_OF_PAIRS), (3, _KINDS_OF_TRIPLES)):
        for order in permutations(range(len(space.places)), size):
            found += product(*(by_rate[p][:few] for p in order))
    padded = [(*blocks, *[-1] * (MOST_BLOCKS - len(blocks))) for blocks in found]
    return np.array(padded, dtype=np.int64).reshape(-1, MOST_BLOCKS)


def _estimated(space: Space, kinds: Kinds, batches: Ints, blocks: Ints) -> Structures:
    held = blocks >= 0
    pick = np.where(held, blocks, 0)
    there = held[:, None, None, :]

    def at(table: Floats | Ints) -> Floats:
        """A table by kind, batch and way as [n, b, v, i]."""
        of_block = [table[pick[:, i]][:, :, FILLINGS[:, i]] for i in range(MOST_BLOCKS)]
        return np.stack(of_block, axis=3).astype(float)

    stages, bad = _stages(space, np.where(there, at(kinds.stages), 0), there)
    total = stages.sum(axis=3)
    replicas = at(kinds.replicas)
    last = (held.sum(axis=1) - 1)[:, None, None, None]
    chain = Chain(
        rows=space.costs.row_count - 2,
        stages=stages,
        row_s=at(kinds.row_s),
        send_s=np.where(total[..., None] > 1, at(kinds.send_s), 0),
        extra_s=_boundaries(kinds, pick, held, replicas, batches),
        head_s=np.take_along_axis(at(kinds.head_s), last, axis=3)[..., 0],
        capacity=_capacity(stages, at(kinds.memory[0]), at(kinds.memory[1])),
        last=last,
    )
    load, rows_of = chain.least_load()
    exchange = np.minimum(kinds.exchange_row_s, _NEVER_S)[pick][:, None, None, :]
    sync = (exchange * (1 - 1 / replicas) * rows_of * (stages > 0)).max(axis=3)
    rounds = -(-space.problem.global_batch // batches)[None, :, None]
    bad |= ~np.isfinite(load)
    load, fill = np.where(bad, 1, load), chain.fill_s()
    estimate = (rounds - 1) * load + fill + sync
    parts = {
        "sync": sync / estimate,
        "bubble": fill / estimate,
        "sends": (chain.send_s * stages).sum(axis=3) / (load * np.maximum(total, 1)),
        "boundary": chain.extra_s.max(axis=3) / load,
        "head": chain.head_s / load,
        "tight": np.where(stages > 0, rows_of / np.maximum(chain.capacity, 1), 0).max(axis=3),
        "short": np.where(stages > 0, rows_of, 99).min(axis=3),
        "slack": 1 - fill / (load * np.maximum(total, 1)),
        "rounds": np.broadcast_to(rounds, total.shape).astype(float),
    }
    return Structures(
        kinds=kinds,
        batches=batches,
        blocks=blocks,
        estimate_s=np.where(bad, np.inf, estimate),
        stages=stages.astype(np.int64),
        parts=parts,
    )


def _stages(space: Space, most: Floats, there: Flags) -> tuple[Floats, Flags]:
    """Stages of each block, fewer of all where there are more than rows; and what cannot be."""
    limit = min(space.costs.row_count, space.in_stages)
    over = most.sum(axis=3, keepdims=True) / limit
    stages = np.maximum(np.floor(most / np.maximum(over, 1)), most > 0)
    bad: Flags = (there & (most == 0)).any(axis=3) | (stages.sum(axis=3) > limit)
    return stages, bad


def _capacity(stages: Floats, first: Floats, second: Floats) -> Floats:
    """Rows that memory holds, with the micro-batches in flight in the middle of each block."""
    after = stages[..., ::-1].cumsum(axis=3)[..., ::-1]
    flight = after - (stages - 1) / 2
    rows = 1 / np.maximum(first + second * np.maximum(flight, 1), TINY)
    found: Floats = np.where(stages > 0, np.floor(rows + 0.5), 0)
    return found


def _boundaries(kinds: Kinds, pick: Ints, held: Flags, replicas: Floats, batches: Ints) -> Floats:
    """What the stages at a boundary between blocks send: activations ahead, gradients back."""
    extra = np.zeros_like(replicas)
    for i in range(MOST_BLOCKS - 1):
        route_s = kinds.sample_send_s[kinds.place[pick[:, i]], kinds.place[pick[:, i + 1]]]
        route_s = np.where(held[:, i + 1], np.minimum(route_s, _NEVER_S), 0)
        fewest = np.minimum(replicas[..., i], replicas[..., i + 1])
        send_s = route_s[:, None, None] * batches[:, None] / fewest
        extra[..., i] += send_s / 2
        extra[..., i + 1] += send_s / 2
    return extra
