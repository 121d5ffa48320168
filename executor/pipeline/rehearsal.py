"""Rehearses a pipeline plan: ranks sleep for the planned times, all else is real.

Every rank runs the table of its plan with real messages between stages, meets the members of its
tensor- and expert-parallel groups, and sums a small gradient over the holders of each segment of
rows. It sleeps for what its device type would compute, send, exchange and update, so that a plan
for V100s beside A100s runs on any machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.pipeline.runner import Observer, Phase, TableRunner
from arachne_opt.executor.pipeline.schedule import Action, make_table
from arachne_opt.executor.pipeline.seats import Seats
from arachne_opt.executor.pipeline.training import StepResult
from arachne_opt.executor.pipeline.wires import Wires
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.layout import Layout, Member
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem, Schedule
from arachne_opt.pipeline.simulate import simulate

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTimes:
    """What one rank would take, in seconds of the rehearsal."""

    forward_s: float
    backward_s: float
    update_s: float


class Rehearsal:
    """A process in the rehearsal of a plan.

    Args:
        problem: has the times.
        plan: legal for the problem.
        speed: so many times faster than planned.
        schedule: 1F1B or GPipe.
        observer: sees the time pass.
        timeout_s: of the process groups.

    Raises:
        RunError: there are fewer processes than ranks.
    """

    def __init__(
        self,
        problem: PipelineProblem,
        plan: PipelinePlan,
        *,
        speed: float,
        observer: Observer,
        schedule: Schedule = Schedule.ONE_F_ONE_B,
        timeout_s: float = 600.0,
    ) -> None:
        self.layout, self._facts, self._speed = Layout(plan), Facts(problem), speed
        self._observer = observer
        self.seats = Seats(self.layout, timeout_s=timeout_s)
        rank = self.seats.rank
        assert rank is not None  # a rehearsal has as many processes as ranks
        self._member = self.layout.members[rank]
        syncs = simulate(problem, plan).syncs
        groups = [self._holders(range(sync.first, sync.end)) for sync in syncs]
        self.seats.prepare(groups)
        self._exchanges = [
            (self.seats.group(group), (sync.end_s - sync.start_s) / speed)
            for sync, group in zip(syncs, groups, strict=True)
            if rank in group
        ]
        self._times = self._own_times()
        table = make_table(self.layout, self._member, schedule)
        self._runner = TableRunner(table, self._worker(rank), self._wires(rank), observer)

    def step(self, learning_rate: float) -> StepResult:
        """One iteration; nothing is trained, whatever the learning rate."""
        self._runner.run()
        begin_s = self._observer.now_s()
        # As it is planned: gradients are exchanged when all pipelines are done.
        dist.barrier()
        for group, seconds in self._exchanges:
            _meet(group)
            _sleep(time.perf_counter() + seconds)
        middle_s = self._observer.now_s()
        self._observer.note(Phase.SYNC, None, begin_s, middle_s)
        _sleep(time.perf_counter() + self._times.update_s)
        self._observer.note(Phase.UPDATE, None, middle_s, self._observer.now_s())
        return StepResult(loss=0.0, norm=0.0, tokens=0)

    def _own_times(self) -> PlannedTimes:
        member, facts = self._member, self._facts
        rows = range(member.rows[0], member.rows[-1] + 1)
        samples = _samples(self.layout, member)
        back_s = facts.backward_s(member.kind, samples, rows, recompute=member.recompute)
        return PlannedTimes(
            forward_s=facts.forward_s(member.kind, samples, rows) / self._speed,
            backward_s=back_s / self._speed,
            update_s=facts.update_s(member.kind, samples, rows.start) / self._speed,
        )

    def _holders(self, rows: range) -> tuple[int, ...]:
        """All ranks that hold one of some rows."""
        return tuple(m.rank for m in self.layout.members if not set(rows).isdisjoint(m.rows))

    def _worker(self, rank: int) -> _SleepingWorker:
        layout = self.layout
        groups = [self.seats.group(layout.tp_group(rank)), self.seats.group(layout.ep_group(rank))]
        samples = len(
            layout.samples(self._member.pipeline, self._member.stage, self._member.replica)
        )
        return _SleepingWorker(self._times, samples, groups)

    def _wires(self, rank: int) -> _SlowWires:
        member, layout = self._member, self.layout
        everyone = self.seats.group(range(layout.world_size))
        return _SlowWires(
            self._message_s,
            layout.samples(member.pipeline, member.stage, member.replica),
            (1,),
            dtype=torch.float32,
            device=_CPU,
            seats=self.seats.seats,
            groups=(everyone, everyone),
            first_member=layout.tp_group(rank)[0],
            group=self.seats.group(layout.tp_group(rank)),
        )

    def _message_s(self, action: Action) -> float:
        target = self.layout.members[action.peer]
        row = self._member.rows[-1] if action.forward else self._member.rows[0]
        samples = len(action.part)
        return self._facts.message_s(self._member.kind, target.kind, row, samples) / self._speed


class _SleepingWorker:
    """Sleeps on one rank, once its groups are there."""

    def __init__(
        self, times: PlannedTimes, samples: int, groups: list[dist.ProcessGroup | None]
    ) -> None:
        self._times, self._groups = times, [group for group in groups if group is not None]
        self._output = torch.zeros(samples, 1)

    def forward(self, microbatch: int, received: Tensor | None) -> Tensor | None:
        """Values of the right number, after the planned time."""
        return self._work(self._times.forward_s)

    def backward(self, microbatch: int, received: Tensor | None) -> Tensor | None:
        """Values of the right number, after the planned time."""
        return self._work(self._times.backward_s)

    def _work(self, seconds: float) -> Tensor:
        for group in self._groups:
            _meet(group)
        _sleep(time.perf_counter() + seconds)
        return self._output


class _SlowWires(Wires):
    """Sends block for as long as planned; a rank computes nothing meanwhile."""

    def __init__(self, seconds_of: Callable[[Action], float], *given: Any, **named: Any) -> None:  # noqa: ANN401 - those of Wires
        super().__init__(*given, **named)
        self._seconds_of = seconds_of

    def send(self, action: Action, output: Tensor) -> None:
        """Posts a message when its time has passed."""
        _sleep(time.perf_counter() + self._seconds_of(action))
        super().send(action, output)


def _samples(layout: Layout, member: Member) -> int:
    """Samples of a replica as plans are priced."""
    pipeline = layout.plan.pipelines[member.pipeline]
    return pipeline.batch // layout.replica_count(member.pipeline, member.stage)


def _meet(group: dist.ProcessGroup | None) -> None:
    """Sums a small gradient over a group, which returns when all are here."""
    if group is not None:
        dist.all_reduce(torch.zeros(1), group=group)


def _sleep(until: float) -> None:
    left = until - time.perf_counter()
    if left > 0:
        time.sleep(left)
