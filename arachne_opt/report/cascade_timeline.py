"""The timelines of a cascade plan and of its replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cluster import Node
from arachne_opt.report.timeline import Arrow, Span, Timeline, Track
from arachne_opt.units import PPM

HAND_OFF = "hand-off"

Key = tuple[int, int]


def planned_timeline(problem: CascadeProblem, plan: CascadePlan) -> Timeline:
    """The tasks of a legal plan, with the hand-offs that devices wait for on a stream of theirs."""
    builder = _Builder(problem, plan)
    for p in plan.placements:
        builder.add(p)
    builder.add_handoffs()
    return builder.timeline("planned")


def measured_timeline(
    problem: CascadeProblem,
    plan: CascadePlan,
    measured: Sequence[Placement],
    name: str = "measured",
) -> Timeline:
    """The tasks as they were measured, in one placement per task or one per task and rank.

    Args:
        problem: gives names.
        plan: gives the groups.
        measured: the times.
        name: such as ``rehearsed`` where tasks only slept.
    """
    builder = _Builder(problem, plan)
    for p in measured:
        builder.add(p)
    return builder.timeline(name)


class _Builder:
    def __init__(self, problem: CascadeProblem, plan: CascadePlan) -> None:
        self.problem = problem
        self.placed = {(p.cascade, p.task): p for p in plan.placements}
        names = process_names(problem.cluster.nodes)
        self.process_of = [names[device.node] for device in problem.cluster.devices]
        # The track of a device's tasks has the number of the device.
        self.tracks = [Track(process=name, device=d) for d, name in enumerate(self.process_of)]
        self.spans: list[Span] = []
        self.first_span: dict[Key, int] = {}

    def add(self, p: Placement) -> None:
        """One span per device of a placement."""
        task = self.problem.cascades[p.cascade].tasks[p.task].name
        args = self._args(p)
        self.first_span.setdefault((p.cascade, p.task), len(self.spans))
        for d in p.devices:
            self.spans.append(
                Span(
                    track=d,
                    name=f"{task} {p.cascade}",
                    category=task,
                    start_us=p.start_us,
                    end_us=p.end_us,
                    args=args,
                )
            )

    def _args(self, p: Placement) -> Mapping[str, Any]:
        cascade = self.problem.cascades[p.cascade]
        planned = self.placed.get((p.cascade, p.task))
        group = planned.devices if planned else p.devices
        return {
            "cascade": p.cascade,
            "id": cascade.id,
            "label": cascade.label,
            "degree": len(group),
            "devices": list(group),
            "penalty": self.problem.cluster.penalty_ppm(group) / PPM,
            **({"recompute": True} if planned and planned.recompute else {}),
        }

    def add_handoffs(self) -> None:
        """The time in which each device of a group gets its slice of a predecessor's result.

        Results that come to a device at the same time are on streams of their own.
        """
        lanes: dict[int, list[tuple[int, int]]] = {}  # per device: (free from, track) by lane
        for move in sorted(self._moves(), key=lambda m: m.start_us):
            for d in move.devices:
                mine = lanes.setdefault(d, [])
                lane = next((i for i, (free, _) in enumerate(mine) if free <= move.start_us), None)
                if lane is None:
                    lane = len(mine)
                    stream = HAND_OFF if lane == 0 else f"{HAND_OFF} {lane + 1}"
                    mine.append((0, len(self.tracks)))
                    self.tracks.append(Track(process=self.process_of[d], device=d, stream=stream))
                track = mine[lane][1]
                mine[lane] = (move.end_us, track)
                self.spans.append(
                    Span(
                        track=track,
                        name=f"{HAND_OFF} {move.cascade}",
                        category=HAND_OFF,
                        start_us=move.start_us,
                        end_us=move.end_us,
                        args={"cascade": move.cascade, "bytes": move.size_bytes},
                    )
                )

    def _moves(self) -> Iterator[_Move]:
        """All hand-offs that take time, with the devices that get something new."""
        for (c, t), p in self.placed.items():
            task = self.problem.cascades[c].tasks[t]
            for index in sorted(set(task.predecessors)):
                before = self.placed[c, index]
                moved_us = self.problem.cluster.handoff_us(
                    task.input_bytes, before.devices, p.devices
                )
                if moved_us:
                    yield _Move(
                        cascade=c,
                        devices=tuple(d for d in p.devices if d not in before.devices),
                        start_us=before.end_us,
                        end_us=before.end_us + moved_us,
                        size_bytes=task.input_bytes,
                    )

    def timeline(self, name: str) -> Timeline:
        """All that was added."""
        return Timeline(
            name=name,
            tracks=tuple(self.tracks),
            spans=tuple(self.spans),
            arrows=tuple(self._arrows()),
        )

    def _arrows(self) -> Iterator[Arrow]:
        """From each task to each that it feeds, between the first ranks of the groups."""
        for (c, t), target in sorted(self.first_span.items()):
            for index in self.problem.cascades[c].tasks[t].predecessors:
                source = self.first_span.get((c, index))
                if source is not None:
                    yield Arrow(name=HAND_OFF, source=source, target=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """One hand-off."""

    cascade: int
    devices: tuple[int, ...]
    start_us: int
    end_us: int
    size_bytes: int


def process_names(nodes: Sequence[Node]) -> list[str]:
    """A name per node; nodes of equal name are told apart by their number."""
    names = [f"{node.name} ({node.device_type.name})" for node in nodes]
    double = {name for name, count in Counter(names).items() if count > 1}
    return [f"{name} #{n}" if name in double else name for n, name in enumerate(names)]
