"""What each rank does in an iteration, as one ordered table; knows no torch.

A table lists forwards and backwards in the order of the schedule, with the messages that they need
and give. A rank never waits while it posts a message: it waits only where it computes. The
messages between two ranks in one direction of the pipeline keep one order on both sides.

Why no table can hang: all replicas of a stage run their operations in the order of the schedule, a
rank waits for nothing but the operations of neighbouring stages on the same micro-batch, and 1F1B
and GPipe never run a stage so that two stages wait for each other: a stage has at least as many
forwards ahead of its backwards as the next one. ``prove`` plays the tables to the end and shows it.

Members of a tensor-parallel group need the whole input. Where the sender has as many members or
more, each receives from its like; where it has fewer, the first receives and *shares*.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from arachne_opt.pipeline.layout import Layout, Member
from arachne_opt.pipeline.problem import Schedule
from arachne_opt.pipeline.schedules import Op, stage_order


class Kind(enum.StrEnum):
    """What an action is."""

    RECEIVE = "receive"  # post the receipt of a message
    SHARE = "share"  # pass the input on inside the tensor-parallel group, from its first member
    COMPUTE = "compute"  # a forward or a backward; waits for its messages
    SEND = "send"  # post a message with what was computed


class Action(NamedTuple):
    """One entry of a table.

    Args:
        forward: belongs to a forward (activations), else to a backward (their gradients).
        peer: rank at the other end of a message.
        part: samples of the micro-batch that a message carries.
    """

    kind: Kind
    forward: bool
    microbatch: int
    peer: int = -1
    part: range = range(0)

    @property
    def tag(self) -> int:
        """Tells the messages between two ranks apart."""
        return 2 * self.microbatch + (0 if self.forward else 1)

    def __str__(self) -> str:
        """For people: ``send forward 3 to rank 5``."""
        text = f"{self.kind} {'forward' if self.forward else 'backward'} {self.microbatch}"
        if self.kind is Kind.SEND:
            return f"{text} to rank {self.peer}"
        return f"{text} from rank {self.peer}" if self.kind is Kind.RECEIVE else text


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a rank exchanges for each micro-batch with one neighbour."""

    peer: int
    part: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Where a rank's input of one direction comes from, and where its output goes.

    Args:
        shares: the first member of the tensor-parallel group receives for all.
    """

    receives: tuple[Link, ...]
    sends: tuple[Link, ...]
    shares: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What one rank does.

    Args:
        samples: its samples of each micro-batch.
    """

    rank: int
    samples: range
    actions: tuple[Action, ...]


def make_tables(layout: Layout, schedule: Schedule = Schedule.ONE_F_ONE_B) -> tuple[Table, ...]:
    """The table of every rank.

    Args:
        layout: with one chunk per stage.
        schedule: 1F1B or GPipe.
    """
    return tuple(make_table(layout, member, schedule) for member in layout.members)


def make_table(layout: Layout, member: Member, schedule: Schedule) -> Table:
    """The table of one rank."""
    assert layout.chunks == 1  # interleaved schedules are torch's
    pipeline = layout.plan.pipelines[member.pipeline]
    count = layout.plan.counts[member.pipeline]
    order = stage_order(schedule, member.stage, len(pipeline.stages), count)
    ends = {forward: ends_of(layout, member, forward=forward) for forward in (True, False)}
    actions = list(_posts(ends, order[0]))
    for op, following in zip(order, [*order[1:], None], strict=True):
        # Posted one operation ahead, so that messages travel while this rank computes.
        actions += _posts(ends, following) if following else ()
        if ends[op.forward].shares:
            actions.append(Action(Kind.SHARE, op.forward, op.microbatch))
        actions.append(Action(Kind.COMPUTE, op.forward, op.microbatch))
        actions += [
            Action(Kind.SEND, op.forward, op.microbatch, link.peer, link.part)
            for link in ends[op.forward].sends
        ]
    samples = layout.samples(member.pipeline, member.stage, member.replica)
    return Table(rank=member.rank, samples=samples, actions=tuple(actions))


def ends_of(layout: Layout, member: Member, *, forward: bool) -> Ends:
    """The neighbours of a rank in one direction."""
    step = 1 if forward else -1
    return Ends(
        receives=tuple(_receives(layout, member, member.stage - step)),
        sends=tuple(_sends(layout, member, member.stage + step)),
        shares=_shares(layout, member, member.stage - step),
    )


def meet(a: range, b: range) -> range:
    """The samples in both of two dealt shares of one micro-batch."""
    both = [s for s in a if s in b]
    return range(both[0], both[-1] + 1, both[1] - both[0]) if len(both) > 1 else _single(both)


def _single(both: list[int]) -> range:
    return range(both[0], both[0] + 1) if both else range(0)


def _posts(ends: dict[bool, Ends], op: Op) -> Iterator[Action]:
    for link in ends[op.forward].receives:
        yield Action(Kind.RECEIVE, op.forward, op.microbatch, link.peer, link.part)


def _receives(layout: Layout, member: Member, source: int) -> Iterator[Link]:
    if member.tp_index > 0 and _shares(layout, member, source):
        return
    own = layout.samples(member.pipeline, member.stage, member.replica)
    for n in _replicas(layout, member.pipeline, source):
        part = meet(own, layout.samples(member.pipeline, source, n))
        if part:
            peer = layout.rank_of(member.pipeline, source, n, member.tp_index)
            yield Link(peer=peer, part=part)


def _sends(layout: Layout, member: Member, target: int) -> Iterator[Link]:
    own = layout.samples(member.pipeline, member.stage, member.replica)
    for n in _replicas(layout, member.pipeline, target):
        part = meet(own, layout.samples(member.pipeline, target, n))
        receiver = layout.members[layout.rank_of(member.pipeline, target, n, 0)]
        shares = _shares(layout, receiver, member.stage)
        reached = 1 if shares else receiver.kind.tp
        if part and member.tp_index < reached:
            peer = layout.rank_of(member.pipeline, target, n, member.tp_index)
            yield Link(peer=peer, part=part)


def _shares(layout: Layout, member: Member, source: int) -> bool:
    """Whether some sender of a replica has fewer members than it."""
    own = layout.samples(member.pipeline, member.stage, member.replica)
    return any(
        meet(own, layout.samples(member.pipeline, source, n))
        and len(layout.replica_ranks(member.pipeline, source, n)) < member.kind.tp
        for n in _replicas(layout, member.pipeline, source)
    )


def _replicas(layout: Layout, pipeline: int, stage: int) -> range:
    if not 0 <= stage < len(layout.plan.pipelines[pipeline].stages):
        return range(0)
    return range(layout.replica_count(pipeline, stage))
