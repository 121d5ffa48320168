"""Plays the tables of all ranks to their end; a table that would hang or mix up samples is named.

The play is as strict as the ranks are: a message arrives when both sides have posted it, messages
of one direction between two ranks match in their order, a rank computes only when the messages of
the operation are there, and a tensor- or expert-parallel group computes together.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from arachne_opt.errors import DisagreementError
from arachne_opt.executor.pipeline.schedule import Action, Kind, Table
from arachne_opt.pipeline.layout import Layout

# The messages from one rank to another in one direction of the pipeline.
Channel = tuple[int, int, bool]


@dataclass
class _Play:
    """Where each rank is, and the messages under way."""

    layout: Layout
    tables: Sequence[Table]
    at: list[int] = field(init=False)
    sent: dict[Channel, deque[Action]] = field(default_factory=lambda: defaultdict(deque))
    posted: dict[Channel, deque[Action]] = field(default_factory=lambda: defaultdict(deque))
    awaited: dict[tuple[int, bool, int], int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        self.at = [0] * len(self.tables)

    def run(self) -> int:
        """Plays everything; returns the number of actions."""
        ready = deque(range(len(self.tables)))
        while ready:
            rank = ready.popleft()
            before = self.at[rank]
            woken = self.advance(rank)
            if self.at[rank] > before or woken:
                ready.extend(woken)
        stuck = [r for r in range(len(self.tables)) if self.action(r) is not None]
        if stuck:
            named = "; ".join(f"rank {r} waits at: {self.action(r)}" for r in stuck[:4])
            raise DisagreementError(f"the tables of {len(stuck)} ranks hang: {named}")
        left = [c for c, queue in (*self.sent.items(), *self.posted.items()) if queue]
        if left:
            what = f"messages from rank {left[0][0]} to rank {left[0][1]} find no other end"
            raise DisagreementError(what)
        return sum(self.at)

    def action(self, rank: int) -> Action | None:
        """What a rank has to do next."""
        actions = self.tables[rank].actions
        return actions[self.at[rank]] if self.at[rank] < len(actions) else None

    def advance(self, rank: int) -> set[int]:
        """Does all that a rank can do now; the ranks that may go on for it."""
        woken: set[int] = set()
        while (action := self.action(rank)) is not None:
            if action.kind in (Kind.SEND, Kind.RECEIVE):
                self.at[rank] += 1
                woken |= self.post(rank, action)
                continue
            group = self.company(rank, action)
            if not all(self.can(member, action) for member in group):
                break
            for member in group:
                self.at[member] += 1
            woken |= set(group) - {rank}
        return woken

    def company(self, rank: int, action: Action) -> set[int]:
        """Ranks that do an action together."""
        layout = self.layout
        if action.kind is Kind.SHARE:
            return set(layout.tp_group(rank))
        return {m for peer in layout.ep_group(rank) for m in layout.tp_group(peer)}

    def can(self, rank: int, action: Action) -> bool:
        """Whether a rank is at the action, and has its messages."""
        waiting = self.awaited[rank, action.forward, action.microbatch]
        return self.action(rank) == action and waiting == 0

    def post(self, rank: int, action: Action) -> set[int]:
        """One end of a message; the ranks that can go on if the other end is there."""
        sending = action.kind is Kind.SEND
        ends = (rank, action.peer) if sending else (action.peer, rank)
        channel = (*ends, action.forward)
        if not sending:
            self.awaited[rank, action.forward, action.microbatch] += 1
        mine, other = (self.sent, self.posted) if sending else (self.posted, self.sent)
        if not other[channel]:
            mine[channel].append(action)
            return set()
        match = other[channel].popleft()
        if (match.microbatch, match.part) != (action.microbatch, action.part):
            what = f"rank {rank} would {action}, and rank {action.peer} would {match}"
            raise DisagreementError(what)
        self.awaited[channel[1], action.forward, action.microbatch] -= 1
        return {channel[1]}


def prove(layout: Layout, tables: Sequence[Table]) -> int:
    """Plays the tables to their end; returns the number of actions.

    Raises:
        DisagreementError: a rank would wait for ever, or get other samples than it needs.
    """
    for table in tables:
        _check_samples(layout, table)
    return _Play(layout, tables).run()


def _check_samples(layout: Layout, table: Table) -> None:
    """Every micro-batch runs forward, then backward, once, on all its samples."""
    member = layout.members[table.rank]
    where = f"rank {table.rank}"
    count = layout.plan.counts[member.pipeline]
    last = len(layout.plan.pipelines[member.pipeline].stages) - 1
    runs: dict[int, list[bool]] = defaultdict(list)
    parts: dict[tuple[int, bool], list[Action]] = defaultdict(list)
    for action in table.actions:
        parts[action.microbatch, action.forward].append(action)
        if action.kind is Kind.COMPUTE:
            runs[action.microbatch].append(action.forward)
    if sorted(runs) != list(range(count)):
        raise DisagreementError(f"not every one of {count} micro-batches runs", where=where)
    for microbatch, directions in runs.items():
        if directions != [True, False]:
            what = f"micro-batch {microbatch} runs as {directions}"
            raise DisagreementError(what, where=where)
        _check_receipts(layout, table, parts[microbatch, True], member.stage > 0)
        _check_receipts(layout, table, parts[microbatch, False], member.stage < last)


def _check_receipts(layout: Layout, table: Table, actions: list[Action], outer: bool) -> None:
    """An operation with a neighbour gets all samples, or its group's first member shares them."""
    shares = any(a.kind is Kind.SHARE for a in actions)
    got = sorted(s for a in actions if a.kind is Kind.RECEIVE for s in a.part)
    expects = outer and not (shares and layout.members[table.rank].tp_index > 0)
    if got != (list(table.samples) if expects else []):
        what = f"micro-batch {actions[0].microbatch} gets the samples {got}"
        raise DisagreementError(f"{what} of {list(table.samples)}", where=f"rank {table.rank}")
