"""Who a rank is under a pipeline plan, and with whom it shares what; knows no torch.

Ranks follow the nodes in the order in which the plan first names them, so that the ranks of a node
are neighbours; inside a node, and where nodes are open, they follow the plan: pipeline, stage,
replica, member of the tensor-parallel group.

Samples of a micro-batch are dealt to the replicas of a stage in turn: sample s goes to replica
s mod d. Where one of two neighbouring stages has a multiple of the other's replicas, replica j then
exchanges with replica j modulo the smaller number, which are the links that the planner prices;
and any number of samples can be dealt, in parts that differ by one at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from arachne_opt.errors import InputError
from arachne_opt.pipeline.event_run import chunk_rows
from arachne_opt.pipeline.plan import PipelinePlan, ReplicaKind, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What one rank is.

    Args:
        tp_index: its number in the tensor-parallel group of its replica.
        ep_index: place of its replica in the expert group, whose ranks ascend; 0 without one.
        chunks: rows that it holds; one run of rows unless the schedule is interleaved.
        node: number of its node among those of its device type; None where the plan leaves it open.
    """

    rank: int
    pipeline: int
    stage: int
    replica: int
    tp_index: int
    ep_index: int
    kind: ReplicaKind
    node: int | None
    chunks: tuple[range, ...]
    recompute: bool

    @property
    def rows(self) -> tuple[int, ...]:
        """All rows that it holds."""
        return tuple(row for rows in self.chunks for row in rows)

    @property
    def label(self) -> str:
        """For people: ``pipeline 0, stage 1, replica 2, member 0``."""
        place = f"pipeline {self.pipeline}, stage {self.stage}, replica {self.replica}"
        return f"{place}, member {self.tp_index}"


class Layout:
    """The ranks of a plan.

    Args:
        plan: pipelines whose stages hold all rows in order.
        chunks: runs of rows per stage; more than one for interleaved schedules.

    Raises:
        InputError: rows are missing, an expert group is not whole, or a replica gets no sample.
    """

    def __init__(self, plan: PipelinePlan, chunks: int = 1) -> None:
        _validate(plan)
        self.plan, self.chunks = plan, chunks
        rows = [chunk_rows(p, chunks) for p in plan.pipelines]
        places = _order(plan)
        expert_index = _expert_indices(plan, places)
        self.row_count = plan.pipelines[0].stages[-1].end
        self.members = tuple(
            Member(
                rank=rank,
                pipeline=p,
                stage=i,
                replica=n,
                tp_index=t,
                ep_index=expert_index[p, i, n],
                kind=plan.pipelines[p].stages[i].replicas[n].kind,
                node=plan.pipelines[p].stages[i].replicas[n].node,
                chunks=tuple(rows[p][i, c] for c in range(chunks)),
                recompute=plan.pipelines[p].stages[i].recompute,
            )
            for rank, (p, i, n, t) in enumerate(places)
        )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.members)

    def rank_of(self, pipeline: int, stage: int, replica: int, tp_index: int) -> int:
        """The rank at a place."""
        return self._ranks[pipeline, stage, replica, tp_index]

    def replica_ranks(self, pipeline: int, stage: int, replica: int) -> tuple[int, ...]:
        """The ranks of a replica by their number in the tensor-parallel group."""
        tp = self.plan.pipelines[pipeline].stages[stage].replicas[replica].kind.tp
        return tuple(self.rank_of(pipeline, stage, replica, t) for t in range(tp))

    def tp_group(self, rank: int) -> tuple[int, ...]:
        """The tensor-parallel group of a rank, itself included."""
        m = self.members[rank]
        return self.replica_ranks(m.pipeline, m.stage, m.replica)

    def ep_group(self, rank: int) -> tuple[int, ...]:
        """Ranks that exchange tokens with a rank: equal members of the replicas of its group."""
        m = self.members[rank]
        first = m.replica - m.ep_index
        return tuple(
            self.rank_of(m.pipeline, m.stage, n, m.tp_index)
            for n in range(first, first + m.kind.ep)
        )

    def replica_count(self, pipeline: int, stage: int) -> int:
        """Replicas of a stage."""
        return len(self.plan.pipelines[pipeline].stages[stage].replicas)

    def samples(self, pipeline: int, stage: int, replica: int) -> range:
        """Which samples of each micro-batch a replica works on."""
        batch = self.plan.pipelines[pipeline].batch
        return range(replica, batch, self.replica_count(pipeline, stage))

    def first_sample(self, pipeline: int, microbatch: int) -> int:
        """Number, among the samples of the iteration, of the first one of a micro-batch."""
        return self._starts[pipeline] + microbatch * self.plan.pipelines[pipeline].batch

    def iteration_samples(self, rank: int, microbatch: int) -> range:
        """The samples of a rank in one of its micro-batches, counted over the whole iteration."""
        m = self.members[rank]
        own = self.samples(m.pipeline, m.stage, m.replica)
        first = self.first_sample(m.pipeline, microbatch)
        return range(own.start + first, own.stop + first, own.step)

    def holders(self, row: int) -> tuple[tuple[int, ...], ...]:
        """All replicas that hold a row, in plan order, each as its ranks."""
        return self._holders[row]

    def segments(self) -> tuple[range, ...]:
        """Longest runs of rows whose holders are the same."""
        cuts = [
            row
            for row in range(self.row_count)
            if row == 0 or self._holders[row] != self._holders[row - 1]
        ]
        return tuple(range(a, b) for a, b in zip(cuts, [*cuts[1:], self.row_count], strict=True))

    def nodes(self) -> Iterator[tuple[str, int | None, range]]:
        """Device type, number and ranks of each node, in rank order; open nodes are merged."""
        for (kind, node), run in groupby(self.members, lambda m: (m.kind.device_type, m.node)):
            ranks = [m.rank for m in run]
            yield kind, node, range(ranks[0], ranks[-1] + 1)

    @cached_property
    def _ranks(self) -> dict[tuple[int, int, int, int], int]:
        return {(m.pipeline, m.stage, m.replica, m.tp_index): m.rank for m in self.members}

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        for pipeline, count in zip(self.plan.pipelines, self.plan.counts, strict=True):
            starts.append(starts[-1] + pipeline.batch * count)
        return tuple(starts)

    @cached_property
    def _holders(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        found: list[list[tuple[int, ...]]] = [[] for _ in range(self.row_count)]
        for p, i, stage in self.plan.stages():
            for n in range(len(stage.replicas)):
                ranks = self.replica_ranks(p, i, n)
                for row in self.members[ranks[0]].rows:
                    found[row].append(ranks)
        return tuple(tuple(replicas) for replicas in found)


def _order(plan: PipelinePlan) -> list[tuple[int, int, int, int]]:
    """All places, node by node."""
    places = [
        (p, i, n, t)
        for p, i, stage in plan.stages()
        for n, replica in enumerate(stage.replicas)
        for t in range(replica.kind.tp)
    ]
    numbers: dict[tuple[str, int | None], int] = {}

    def node(place: tuple[int, int, int, int]) -> int:
        replica = plan.pipelines[place[0]].stages[place[1]].replicas[place[2]]
        return numbers.setdefault((replica.kind.device_type, replica.node), len(numbers))

    if any(r.node is None for _, _, stage in plan.stages() for r in stage.replicas):
        return places
    return sorted(places, key=node)


def _expert_group(replica: int, ep: int) -> range:
    """The replicas that share experts with one."""
    first = replica - replica % ep
    return range(first, first + ep)


def _expert_indices(
    plan: PipelinePlan, places: list[tuple[int, int, int, int]]
) -> dict[tuple[int, int, int], int]:
    """Place of every replica in its expert group, counted in rank order."""
    groups: dict[tuple[int, int, int], int] = {}
    found: dict[tuple[int, int, int], int] = {}
    for p, i, n, t in places:
        if t == 0:
            ep = plan.pipelines[p].stages[i].replicas[n].kind.ep
            group = p, i, _expert_group(n, ep).start
            found[p, i, n] = groups.get(group, 0)
            groups[group] = found[p, i, n] + 1
    return found


def _validate(plan: PipelinePlan) -> None:
    ends = set()
    for p, pipeline in enumerate(plan.pipelines):
        at = 0
        for i, stage in enumerate(pipeline.stages):
            if stage.first != at or stage.end <= stage.first:
                what = f"rows {stage.first} to {stage.end}: empty, or row {at} should come next"
                raise InputError(what, where=_place(p, i))
            at = stage.end
            _validate_replicas(stage, pipeline.batch, _place(p, i))
        ends.add(at)
    if len(ends) > 1:
        raise InputError(f"the pipelines end at the rows {sorted(ends)}", where="plan")


def _validate_replicas(stage: Stage, batch: int, where: str) -> None:
    if batch < len(stage.replicas):
        what = f"{batch} samples of a micro-batch for {len(stage.replicas)} replicas"
        raise InputError(what, where=where, hint="a larger micro-batch, or fewer replicas")
    kinds = [r.kind for r in stage.replicas]
    ep = kinds[0].ep
    groups = [kinds[at : at + ep] for at in range(0, len(kinds), ep)]
    if any(len(g) < ep or {(k.ep, k.tp) for k in g} != {(ep, g[0].tp)} for g in groups):
        raise InputError(f"replicas do not fall into whole expert groups of {ep}", where=where)


def _place(pipeline: int, stage: int) -> str:
    return f"pipeline {pipeline}, stage {stage}"
