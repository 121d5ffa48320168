"""A cascade plan as a Chrome trace, for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.units import PPM

Event = dict[str, Any]


def chrome_trace(
    problem: CascadeProblem,
    plan: CascadePlan,
    measured: Sequence[Placement] | None = None,
) -> dict[str, Any]:
    """The trace as JSON values: a process per node, a track per device, arrows for hand-offs.

    Args:
        problem: gives names to nodes, cascades and tasks.
        plan: a legal plan.
        measured: the same tasks with the times of a replay, from its start; one placement per
            task, or one per task and rank. They appear as processes of their own.
    """
    layers = [_Layer(name="planned", first_pid=0, placements=plan.placements)]
    if measured is not None:
        first_pid = len(problem.cluster.nodes)
        layers.append(_Layer(name="measured", first_pid=first_pid, placements=tuple(measured)))
    writer = _Writer(problem, plan)
    return {
        "traceEvents": [event for layer in layers for event in writer.events(layer)],
        "displayTimeUnit": "ms",
        "otherData": {"problem": problem.name, "makespan_us": plan.makespan_us},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """Placements that appear together; ``first_pid`` is the process of the first node."""

    name: str
    first_pid: int
    placements: tuple[Placement, ...]


class _Writer:
    def __init__(self, problem: CascadeProblem, plan: CascadePlan) -> None:
        self.problem = problem
        self.group_of = {(p.cascade, p.task): p.devices for p in plan.placements}

    def events(self, layer: _Layer) -> Iterator[Event]:
        """Names, then tasks, then arrows."""
        yield from self._names(layer)
        for p in layer.placements:
            yield from self._slices(layer, p)
        yield from self._arrows(layer)

    def _names(self, layer: _Layer) -> Iterator[Event]:
        for n, node in enumerate(self.problem.cluster.nodes):
            pid = layer.first_pid + n
            title = f"{layer.name} {node.name} ({node.device_type.name})"
            yield _meta("process_name", pid, 0, {"name": title})
            yield _meta("process_sort_index", pid, 0, {"sort_index": pid})
        for device in self.problem.cluster.devices:
            pid = layer.first_pid + device.node
            title = f"device {device.index}"
            yield _meta("thread_name", pid, device.index, {"name": title})
            yield _meta("thread_sort_index", pid, device.index, {"sort_index": device.index})

    def _slices(self, layer: _Layer, p: Placement) -> Iterator[Event]:
        """One complete event per device of the group."""
        cascade = self.problem.cascades[p.cascade]
        name = cascade.tasks[p.task].name
        group = self.group_of.get((p.cascade, p.task), p.devices)
        args: Mapping[str, Any] = {
            "cascade": p.cascade,
            "id": cascade.id,
            "label": cascade.label,
            "degree": len(group),
            "devices": list(group),
            "penalty": self.problem.cluster.penalty_ppm(group) / PPM,
        }
        for d in p.devices:
            yield {
                "ph": "X",
                "name": f"{name} {p.cascade}",
                "cat": name,
                "ts": p.start_us,
                "dur": p.end_us - p.start_us,
                "pid": self._pid(layer, d),
                "tid": d,
                "args": dict(args),
            }

    def _arrows(self, layer: _Layer) -> Iterator[Event]:
        """A flow from each task to each that it feeds, between the first ranks of the groups."""
        placed = {(p.cascade, p.task): p for p in reversed(layer.placements)}
        for (c, t), after in sorted(placed.items()):
            for p in self.problem.cascades[c].tasks[t].predecessors:
                before = placed.get((c, p))
                if before is None:
                    continue
                flow = {"name": "hand-off", "cat": "hand-off", "id": f"{layer.name}-{c}-{p}-{t}"}
                # The arrow must begin inside its slice, hence at the last microsecond.
                start_us = max(before.start_us, before.end_us - 1)
                yield {**flow, "ph": "s", "ts": start_us} | self._track(layer, before)
                end = {**flow, "ph": "f", "bp": "e", "ts": after.start_us}
                yield end | self._track(layer, after)

    def _track(self, layer: _Layer, p: Placement) -> Event:
        device = p.devices[0]
        return {"pid": self._pid(layer, device), "tid": device}

    def _pid(self, layer: _Layer, device: int) -> int:
        return layer.first_pid + self.problem.cluster.devices[device].node


def _meta(name: str, pid: int, tid: int, args: Event) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
