"""Which node holds which ranks, so that a grid's stages stand on the devices of their plan.

Ranks count through tensor-parallel groups, then replicas, then stages, as Megatron-LM, torchtitan
and DeepSpeed number them; a launcher numbers the ranks of a node consecutively.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arachne_opt.exporters.grid import Grid
from arachne_opt.pipeline.plan import Replica, Stage

_Place = tuple[str, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node with the ranks that it has to hold; ``node`` counts the nodes of its type."""

    device_type: str
    node: int | None
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """For people: ``ranks 0-3 on A100-40 node 1``."""
        spans = []
        start = previous = self.ranks[0]
        for rank in (*self.ranks[1:], None):
            if rank is not None and rank == previous + 1:
                previous = rank
                continue
            spans.append(str(start) if start == previous else f"{start}-{previous}")
            start = previous = rank if rank is not None else previous
        where = "any node" if self.node is None else f"node {self.node}"
        return f"ranks {', '.join(spans)} on {self.device_type} {where}"

    @property
    def whole(self) -> bool:
        """Whether its ranks follow each other."""
        return self.ranks[-1] - self.ranks[0] + 1 == len(self.ranks)


def hosts_of(grid: Grid) -> tuple[Host, ...]:
    """The nodes in the order of their first rank."""
    ranks: dict[_Place, list[int]] = {}
    rank = 0
    for number, stage in enumerate(grid.stages):
        before = _places(grid.stages[number - 1]) if number else set()
        after = _places(grid.stages[number + 1]) if number + 1 < grid.pp else set()
        for replica in _ordered(stage, before, after):
            span = range(rank, rank + replica.kind.tp)
            ranks.setdefault(_place(replica), []).extend(span)
            rank += replica.kind.tp
    return tuple(
        Host(device_type=kind, node=node, ranks=tuple(found))
        for (kind, node), found in ranks.items()
    )


def torn(hosts: Sequence[Host]) -> tuple[str, ...]:
    """Nodes whose ranks do not follow each other: a launcher cannot give them these."""
    return tuple(
        f"{host.label}: a launcher numbers the ranks of a node consecutively"
        for host in hosts
        if host.node is not None and not host.whole
    )


def _ordered(stage: Stage, before: set[_Place], after: set[_Place]) -> list[Replica]:
    """Replicas node by node, those of nodes shared with the next stage last; groups stay whole."""
    ep = stage.replicas[0].kind.ep
    groups = [stage.replicas[i : i + ep] for i in range(0, len(stage.replicas), ep)]

    def key(group: Sequence[Replica]) -> tuple[int, str, int]:
        kind, node = place = _place(group[0])
        late = (place in after) - (place in before)
        return late, kind, -1 if node is None else node

    return [replica for group in sorted(groups, key=key) for replica in group]


def _places(stage: Stage) -> set[_Place]:
    return {_place(r) for r in stage.replicas if r.node is not None}


def _place(replica: Replica) -> _Place:
    return replica.kind.device_type, replica.node
