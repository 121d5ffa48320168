"""The events of one pipeline, replica by replica.

Every replica runs its operations in the order of the schedule. An operation starts when its replica
is free and all messages that it needs have arrived. A result is sent to every linked replica of
the next (or, backward, the previous) chunk, one message after the other; a replica receives one
message at a time from each of its two neighbours, over links that were measured alone. Where a
boundary has unequal sides, the messages of one replica on the smaller side are parts of one
transfer and have its rate, whatever their own size. With *blocking sends* a replica computes
nothing while it sends, as the closed form assumes; otherwise its sends overlap its next
operations. Replicas of one expert-parallel group start each operation together, as their
all-to-all demands.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from arachne_opt.errors import InputError
from arachne_opt.pipeline.facts import Facts, replica_pairs
from arachne_opt.pipeline.gradient_sync import Holder
from arachne_opt.pipeline.plan import Pipeline, ReplicaKind, Stage
from arachne_opt.pipeline.problem import Schedule
from arachne_opt.pipeline.schedules import Op, peak_in_flight, stage_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One operation of one replica as it was simulated."""

    pipeline: int
    stage: int
    replica: int
    op: Op
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One message of a replica, from when it wants to send to when the receiver has it."""

    pipeline: int
    stage: int
    replica: int
    op: Op
    to_stage: int
    to_replica: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimeline:
    """What a stage does in an iteration, as a mean over its replicas.

    Args:
        busy_s: compute, all-to-all included.
        send_s: time in which a replica sends (and, with blocking sends, computes nothing).
        bubble: share of the pipeline's time in which a replica neither computes nor sends.
        in_flight: most micro-batches kept for their backward at once, in whole stages.
        end_s: when the last backward ends.
    """

    pipeline: int
    stage: int
    busy_s: float
    send_s: float
    bubble: float
    in_flight: float
    end_s: float


class _Message(NamedTuple):
    """To a replica of a stage, for the operation that waits for it.

    Args:
        rest_s: the sender stays blocked for so long after a blocking send.
    """

    stage: int
    replica: int
    forward: bool
    chunk: int
    seconds: float
    rest_s: float


@dataclass(slots=True)
class _Unit:
    """Replicas of a stage that start every operation together: one, or an expert group."""

    stage: int
    members: tuple[int, ...]
    kind: ReplicaKind
    at: int = 0
    busy: bool = False
    sending: int = 0


class PipelineRun:
    """One pipeline while it is simulated."""

    def __init__(
        self,
        facts: Facts,
        number: int,
        pipeline: Pipeline,
        microbatches: int,
        schedule: Schedule,
        chunks: int,
        blocking: bool,
        published_ends: bool,
    ) -> None:
        self.facts, self.number, self.pipeline, self.blocking = facts, number, pipeline, blocking
        self.published_ends = published_ends
        count = len(pipeline.stages)
        self.rows = chunk_rows(pipeline, chunks)
        self.orders = [stage_order(schedule, i, count, microbatches, chunks) for i in range(count)]
        self.chunks = chunks
        self.holders = self._holders()
        self.units = [u for i, stage in enumerate(pipeline.stages) for u in _units(i, stage)]
        self.unit_of = {(u.stage, m): u for u in self.units for m in u.members}
        self.needs: Counter[tuple[int, int, bool, int]] = Counter()
        self.outbox: dict[tuple[int, int, bool, int], list[_Message]] = {}
        self._connect()
        self.durations = {
            (u.stage, u.kind, forward, c): self._duration_s(u, forward, c)
            for u in self.units
            for forward in (True, False)
            for c in range(chunks)
        }
        self.arrived: Counter[tuple[int, int, Op]] = Counter()
        self.queues: dict[tuple[int, int], deque[tuple[_Message, int]]] = {
            key: deque() for key in self.unit_of
        }
        self.on_air: set[tuple[int, int]] = set()
        self.port_free_s: dict[tuple[int, int, bool], float] = {}
        self.send_s = [0.0] * count
        self.end_s = 0.0  # of the last operation or send
        self.tasks: list[Task] = []
        self.sends: list[Send] = []
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.ticket = itertools.count()

    def play(self) -> None:
        """Runs all events."""
        for unit in self.units:
            self._try(unit, 0.0)
        while self.events:
            self.end_s, _, act = heapq.heappop(self.events)
            act(self.end_s)
        assert all(u.at == len(self.orders[u.stage]) for u in self.units), "the schedule is stuck"

    def update_s(self) -> float:
        """Slowest optimizer update of a stage."""
        return max(
            self.facts.update_s(kind, self._samples(stage), stage.first)
            for stage in self.pipeline.stages
            for kind in stage.kinds
        )

    def gradient_ready_s(self, row: int) -> float:
        """When the last backward of any replica that holds a row has passed it."""
        stage = self.holders[row].number
        chunk = next(c for c in range(self.chunks) if row in self.rows[stage, c])
        below = range(row, self.rows[stage, chunk].stop)
        return max(
            task.start_s + self._backward_s(stage, self.unit_of[stage, task.replica].kind, below)
            for task in self._last_backwards[stage, chunk]
        )

    def timelines(self) -> Iterator[StageTimeline]:
        """What every stage did."""
        for i, stage in enumerate(self.pipeline.stages):
            mine = [t for t in self.tasks if t.stage == i]
            replicas = len(stage.replicas)
            busy = sum(t.end_s - t.start_s for t in mine) / replicas
            send = self.send_s[i] / replicas
            idle = self.end_s - busy - (send if self.blocking else 0.0)
            yield StageTimeline(
                pipeline=self.number,
                stage=i,
                busy_s=busy,
                send_s=send,
                bubble=max(0.0, idle / self.end_s),
                in_flight=peak_in_flight(self.orders[i]) / self.chunks,
                end_s=max(t.end_s for t in mine),
            )

    @cached_property
    def _last_backwards(self) -> dict[tuple[int, int], list[Task]]:
        """Each replica's last backward of every chunk."""
        last: dict[tuple[int, int, int], Task] = {}
        for t in self.tasks:
            if not t.op.forward:
                last[t.stage, t.op.chunk, t.replica] = t
        found: dict[tuple[int, int], list[Task]] = {}
        for (stage, chunk, _), task in last.items():
            found.setdefault((stage, chunk), []).append(task)
        return found

    def _holders(self) -> list[Holder]:
        found: dict[int, Holder] = {}
        for (i, _), rows in self.rows.items():
            holder = Holder(self.number, i, self.pipeline.stages[i])
            found |= dict.fromkeys(rows, holder)
        return [found[row] for row in sorted(found)]

    def _connect(self) -> None:
        """What each operation of each replica sends, and how many messages each one waits for."""
        stages, count = self.pipeline.stages, len(self.pipeline.stages)
        for place in range(count * self.chunks - 1):
            (c, i), (d, j) = divmod(place, count), divmod(place + 1, count)
            a, b = stages[i].replicas, stages[j].replicas
            few, many = sorted((len(a), len(b)))
            share, part = self.pipeline.batch / few, few / many
            rows = self.rows[i, c], self.rows[j, d]
            for x, y in replica_pairs(len(a), len(b)):
                ahead = back = 0.0
                if i != j:
                    source, target = a[x].kind, b[y].kind
                    ahead = part * self.facts.message_s(source, target, rows[0].stop - 1, share)
                    back = part * self.facts.message_s(target, source, rows[1].start, share)
                self._link((i, x, c), (j, y, d), True, ahead)
                self._link((j, y, d), (i, x, c), False, back)

    def _link(
        self,
        source: tuple[int, int, int],
        target: tuple[int, int, int],
        forward: bool,
        seconds: float,
    ) -> None:
        stage, replica, chunk = source
        rest = seconds if self._pays_twice(stage, forward) else 0.0
        message = _Message(target[0], target[1], forward, target[2], seconds, rest)
        self.outbox.setdefault((stage, replica, forward, chunk), []).append(message)
        self.needs[target[0], target[1], forward, target[2]] += 1

    def _pays_twice(self, stage: int, forward: bool) -> bool:
        """Whether the published form charges the sends of a stage at either end twice."""
        last = len(self.pipeline.stages) - 1
        end = (stage == 0 and last > 2) if forward else stage == last
        return self.published_ends and end

    def _samples(self, stage: Stage) -> int:
        return self.pipeline.batch // len(stage.replicas)

    def _duration_s(self, unit: _Unit, forward: bool, chunk: int) -> float:
        stage, rows = self.pipeline.stages[unit.stage], self.rows[unit.stage, chunk]
        if forward:
            return self.facts.forward_s(unit.kind, self._samples(stage), rows)
        return self._backward_s(unit.stage, unit.kind, rows)

    def _backward_s(self, number: int, kind: ReplicaKind, rows: range) -> float:
        stage = self.pipeline.stages[number]
        return self.facts.backward_s(kind, self._samples(stage), rows, recompute=stage.recompute)

    def _at(self, time_s: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (time_s, next(self.ticket), act))

    def _try(self, unit: _Unit, now_s: float) -> None:
        """Starts the next operation of a unit if it can."""
        order = self.orders[unit.stage]
        if unit.busy or unit.at == len(order):
            return
        op = order[unit.at]
        for m in unit.members:
            need = self.needs[unit.stage, m, op.forward, op.chunk]
            if need and self.arrived[unit.stage, m, op] < need:
                return
        unit.busy = True
        unit.at += 1
        end = now_s + self.durations[unit.stage, unit.kind, op.forward, op.chunk]
        self.tasks += [
            Task(pipeline=self.number, stage=unit.stage, replica=m, op=op, start_s=now_s, end_s=end)
            for m in unit.members
        ]
        self._at(end, partial(self._computed, unit, op))

    def _computed(self, unit: _Unit, op: Op, now_s: float) -> None:
        """Puts the results of an operation on their way."""
        for m in unit.members:
            messages = self.outbox.get((unit.stage, m, op.forward, op.chunk), ())
            self.queues[unit.stage, m].extend((message, op.microbatch) for message in messages)
        if not self.blocking:
            unit.busy = False
        unit.sending = len(unit.members)
        for m in unit.members:
            self._send_next(unit, m, now_s)
        self._try(unit, now_s)

    def _send_next(self, unit: _Unit, member: int, now_s: float) -> None:
        """Sends the next message of a replica as soon as the receiver's port is free."""
        key = unit.stage, member
        if key in self.on_air:
            return
        if not self.queues[key]:
            unit.sending -= 1
            if self.blocking and unit.sending == 0:
                unit.busy = False
            return
        message, microbatch = self.queues[key].popleft()
        port = message.stage, message.replica, message.forward
        end = max(now_s, self.port_free_s.get(port, 0.0)) + message.seconds
        self.port_free_s[port] = end
        self.send_s[unit.stage] += end - now_s
        self._note_send(unit, member, message, microbatch, now_s, end)
        self.on_air.add(key)
        self._at(end, partial(self._delivered, unit, member, message, microbatch))

    def _note_send(
        self,
        unit: _Unit,
        member: int,
        message: _Message,
        microbatch: int,
        start_s: float,
        end_s: float,
    ) -> None:
        self.sends.append(
            Send(
                pipeline=self.number,
                stage=unit.stage,
                replica=member,
                op=Op(message.forward, message.chunk, microbatch),
                to_stage=message.stage,
                to_replica=message.replica,
                start_s=start_s,
                end_s=end_s,
            )
        )

    def _delivered(
        self, unit: _Unit, member: int, message: _Message, microbatch: int, now_s: float
    ) -> None:
        op = Op(message.forward, message.chunk, microbatch)
        self.arrived[message.stage, message.replica, op] += 1
        self._try(self.unit_of[message.stage, message.replica], now_s)
        if message.rest_s and self.blocking:
            self.send_s[unit.stage] += message.rest_s
            self._at(now_s + message.rest_s, partial(self._free_to_send, unit, member))
        else:
            self._free_to_send(unit, member, now_s)

    def _free_to_send(self, unit: _Unit, member: int, now_s: float) -> None:
        self.on_air.discard((unit.stage, member))
        self._send_next(unit, member, now_s)
        self._try(unit, now_s)


def _units(number: int, stage: Stage) -> Iterator[_Unit]:
    at = 0
    while at < len(stage.replicas):
        kind = stage.replicas[at].kind
        yield _Unit(stage=number, members=tuple(range(at, at + kind.ep)), kind=kind)
        at += kind.ep


def chunk_rows(pipeline: Pipeline, chunks: int) -> dict[tuple[int, int], range]:
    """Rows of each (stage, chunk): parts of each stage's number of rows, dealt in chunk order."""
    rows: dict[tuple[int, int], range] = {}
    at = 0
    for c in range(chunks):
        for i, stage in enumerate(pipeline.stages):
            if stage.row_count < chunks:
                what = f"stage {i} has {stage.row_count} rows for {chunks} chunks"
                raise InputError(what, hint="fewer chunks")
            size = stage.row_count * (c + 1) // chunks - stage.row_count * c // chunks
            rows[i, c] = range(at, at + size)
            at += size
    return rows
