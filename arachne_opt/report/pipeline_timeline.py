"""The timeline of a pipeline plan: operations, messages, gradient exchange and update by device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from arachne_opt.pipeline.event_run import Send, Task
from arachne_opt.pipeline.facts import replica_pairs
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.pipeline.simulate import Simulation, simulate
from arachne_opt.report.cascade_timeline import process_names
from arachne_opt.report.timeline import COMPUTE, Arrow, Span, Timeline, Track
from arachne_opt.units import US_PER_S

SEND, GRADIENTS = "send", "gradients"
FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"

# (pipeline, stage, replica)
Seat = tuple[int, int, int]


def devices_of_replicas(problem: PipelineProblem, plan: PipelinePlan) -> dict[Seat, range]:
    """The devices of every replica, numbered through the nodes of the cluster in order.

    Replicas take the devices of their node in the order of the plan; a replica without a node gets
    one first.
    """
    placed = place(problem, plan)
    first_of_node: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    at = 0
    for node in problem.cluster.nodes:
        kind = node.device_type.name
        first_of_node[kind, counts.get(kind, 0)] = at
        counts[kind] = counts.get(kind, 0) + 1
        at += node.device_count
    used: dict[tuple[str, int], int] = {}
    seats: dict[Seat, range] = {}
    for p, i, stage in placed.stages():
        for r, replica in enumerate(stage.replicas):
            assert replica.node is not None  # place gives every replica one
            home = replica.kind.device_type, replica.node
            first = first_of_node[home] + used.get(home, 0)
            used[home] = used.get(home, 0) + replica.kind.tp
            seats[p, i, r] = range(first, first + replica.kind.tp)
    return seats


def simulated(problem: PipelineProblem, plan: PipelinePlan) -> Simulation:
    """The simulation that plans are checked by, with all operations and messages."""
    return simulate(problem, plan, published_ends=True, keep_tasks=True)


def planned_timeline(
    problem: PipelineProblem, plan: PipelinePlan, simulation: Simulation | None = None
) -> Timeline:
    """The simulated iteration of a legal plan, on the devices of its replicas."""
    builder = _Builder(problem, plan, simulation or simulated(problem, plan))
    return builder.timeline()


@dataclass(slots=True)
class _Builder:
    problem: PipelineProblem
    plan: PipelinePlan
    simulation: Simulation

    def timeline(self) -> Timeline:
        """All spans, then the arrows between operations."""
        seats = devices_of_replicas(self.problem, self.plan)
        names = process_names(self.problem.cluster.nodes)
        used = sorted(d for devices in seats.values() for d in devices)
        devices = self.problem.cluster.devices
        tracks = tuple(
            Track(process=names[devices[d].node], device=d, stream=stream)
            for d in used
            for stream in (COMPUTE, SEND, GRADIENTS)
        )
        index = {(track.device, track.stream): i for i, track in enumerate(tracks)}
        spans: list[Span] = []
        first: dict[tuple[Seat, bool, int, int], int] = {}
        for task in self.simulation.tasks:
            seat = (task.pipeline, task.stage, task.replica)
            first[seat, task.op.forward, task.op.chunk, task.op.microbatch] = len(spans)
            spans += [self._task(task, index[d, COMPUTE]) for d in seats[seat]]
        for send in self.simulation.sends:
            if send.end_s > send.start_s:
                seat = (send.pipeline, send.stage, send.replica)
                spans += [_send(send, index[d, SEND]) for d in seats[seat]]
        spans += self._after(seats, index)
        arrows = tuple(self._arrows(first))
        return Timeline(name="planned", tracks=tracks, spans=tuple(spans), arrows=arrows)

    def _task(self, task: Task, track: int) -> Span:
        kind = FORWARD if task.op.forward else BACKWARD
        stage = self.plan.pipelines[task.pipeline].stages[task.stage]
        replica = stage.replicas[task.replica].kind
        return Span(
            track=track,
            name=f"{kind} {task.op.microbatch}",
            category=kind,
            start_us=_us(task.start_s),
            end_us=_us(task.end_s),
            args={
                "pipeline": task.pipeline,
                "stage": task.stage,
                "replica": task.replica,
                "microbatch": task.op.microbatch,
                "rows": f"{stage.first}-{stage.end - 1}",
                "degree": replica.tp,
                "kind": replica.label,
            },
        )

    def _after(self, seats: dict[Seat, range], index: dict[tuple[int, str], int]) -> Iterator[Span]:
        """Gradient exchange on the devices that hold its rows, and updates at the end."""
        end_us = _us(self.simulation.iteration_s)
        for (p, i, _), devices in seats.items():
            stage = self.plan.pipelines[p].stages[i]
            for sync in self.simulation.syncs:
                if sync.first < stage.end and stage.first < sync.end:
                    for d in devices:
                        yield Span(
                            track=index[d, GRADIENTS],
                            name=f"gradients of rows {sync.first}-{sync.end - 1}",
                            category=GRADIENTS,
                            start_us=_us(sync.start_s),
                            end_us=_us(sync.end_s),
                        )
            update_us = _us(self.simulation.update_s[p])
            for d in devices if update_us else ():
                start_us = end_us - update_us
                yield Span(
                    track=index[d, COMPUTE],
                    name=UPDATE,
                    category=UPDATE,
                    start_us=start_us,
                    end_us=end_us,
                    args={"pipeline": p, "stage": i},
                )

    def _arrows(self, first: dict[tuple[Seat, bool, int, int], int]) -> Iterator[Arrow]:
        """Activations forwards, gradients backwards, between the first devices of replicas."""
        after: dict[tuple[Seat, bool], list[Seat]] = defaultdict(list)
        for p, pipeline in enumerate(self.plan.pipelines):
            for i in range(len(pipeline.stages) - 1):
                a, b = pipeline.stages[i], pipeline.stages[i + 1]
                for x, y in replica_pairs(len(a.replicas), len(b.replicas)):
                    after[(p, i, x), True].append((p, i + 1, y))
                    after[(p, i + 1, y), False].append((p, i, x))
        for (seat, forward, chunk, microbatch), source in first.items():
            for target in after[seat, forward]:
                found = first.get((target, forward, chunk, microbatch))
                if found is not None:
                    name = "activations" if forward else "gradients of activations"
                    yield Arrow(name=name, source=source, target=found)


def _send(send: Send, track: int) -> Span:
    what = "activations" if send.op.forward else "gradients"
    return Span(
        track=track,
        name=f"{what} {send.op.microbatch} to stage {send.to_stage}",
        category=SEND,
        start_us=_us(send.start_s),
        end_us=_us(send.end_s),
        args={"replica": send.to_replica},
    )


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)
