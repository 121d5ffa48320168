"""Timelines as a Chrome trace, for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.report.cascade_timeline import measured_timeline, planned_timeline
from arachne_opt.report.timeline import Timeline

Event = dict[str, Any]


def chrome_trace(
    problem: CascadeProblem,
    plan: CascadePlan,
    measured: Sequence[Placement] | None = None,
    name: str = "measured",
) -> dict[str, Any]:
    """The trace of a cascade plan: a process per node, a track per device and stream.

    Args:
        problem: gives names to nodes, cascades and tasks.
        plan: a legal plan.
        measured: the same tasks with the times of a replay, from its start; one placement per
            task, or one per task and rank. They appear as processes of their own.
        name: of these processes, such as ``rehearsed`` where tasks only slept.
    """
    timelines = [planned_timeline(problem, plan)]
    if measured is not None:
        timelines.append(measured_timeline(problem, plan, measured, name))
    return trace_of(timelines, {"problem": problem.name, "makespan_us": plan.makespan_us})


def trace_of(
    timelines: Sequence[Timeline], about: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The trace of timelines as JSON values, each process beside its like in the others.

    Every process of every timeline (``planned node0``, ``measured node0``) is a process of the
    trace, and every stream of a device a thread of it; spans are complete events, arrows flows.

    Args:
        timelines: such as what was planned and what was measured.
        about: written to ``otherData``.
    """
    order = tuple(dict.fromkeys(name for line in timelines for name in line.processes))
    events: list[Event] = []
    first_pid = 0
    for layer, timeline in enumerate(timelines):
        sort = {name: at * len(timelines) + layer for at, name in enumerate(order)}
        events += _Layer(timeline, first_pid, sort).events()
        first_pid += len(timeline.processes)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": dict(about or {}),
    }


@dataclass(slots=True)
class _Layer:
    """One timeline; ``first_pid`` is the process of its first one."""

    timeline: Timeline
    first_pid: int
    sort: Mapping[str, int]

    def events(self) -> Iterator[Event]:
        """Names, then spans, then arrows."""
        streams = tuple(dict.fromkeys(track.stream for track in self.timeline.tracks))
        devices = 1 + max((track.device for track in self.timeline.tracks), default=0)
        pids = {name: self.first_pid + n for n, name in enumerate(self.timeline.processes)}
        places = [
            {"pid": pids[t.process], "tid": streams.index(t.stream) * devices + t.device}
            for t in self.timeline.tracks
        ]
        yield from self._names(pids, places, streams)
        for span in self.timeline.spans:
            yield {
                "ph": "X",
                "name": span.name,
                "cat": span.category,
                "ts": span.start_us,
                "dur": span.end_us - span.start_us,
                **places[span.track],
                "args": dict(span.args),
            }
        yield from self._flows(places)

    def _names(
        self, pids: Mapping[str, int], places: Sequence[Event], streams: Sequence[str]
    ) -> Iterator[Event]:
        for name, pid in pids.items():
            place = {"pid": pid, "tid": 0}
            yield _meta("process_name", place, {"name": f"{self.timeline.name} {name}"})
            yield _meta("process_sort_index", place, {"sort_index": self.sort[name]})
        for track, place in zip(self.timeline.tracks, places, strict=True):
            sort = track.device * len(streams) + streams.index(track.stream)
            yield _meta("thread_name", place, {"name": track.title})
            yield _meta("thread_sort_index", place, {"sort_index": sort})

    def _flows(self, places: Sequence[Event]) -> Iterator[Event]:
        for number, arrow in enumerate(self.timeline.arrows):
            before = self.timeline.spans[arrow.source]
            after = self.timeline.spans[arrow.target]
            flow = {
                "name": arrow.name,
                "cat": arrow.name,
                "id": f"{self.timeline.name}-{number}",
            }
            # The arrow must begin inside its slice, hence at the last microsecond.
            start_us = max(before.start_us, before.end_us - 1)
            yield {**flow, "ph": "s", "ts": start_us, **places[before.track]}
            yield {**flow, "ph": "f", "bp": "e", "ts": after.start_us, **places[after.track]}


def _meta(name: str, place: Event, args: Event) -> Event:
    return {"ph": "M", "name": name, **place, "args": args}
