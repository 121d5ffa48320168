"""The measured timeline of a pipeline plan, on the tracks of the planned one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from arachne_opt.pipeline.plan import PipelinePlan
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.report.cascade_timeline import process_names
from arachne_opt.report.pipeline_timeline import (
    BACKWARD,
    FORWARD,
    GRADIENTS,
    SEND,
    UPDATE,
    devices_of_replicas,
)
from arachne_opt.report.timeline import COMPUTE, Span, Timeline, Track

WAIT = "wait"
_STREAMS = {"compute": COMPUTE, "update": COMPUTE, "send": SEND, "sync": GRADIENTS, "wait": WAIT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one device did from one moment to another, in µs since the start of the iteration.

    Args:
        place: pipeline, stage, replica, and number in the tensor-parallel group.
        phase: ``compute``, ``send``, ``wait``, ``sync`` or ``update``.
        microbatch: -1 where it belongs to no operation.
    """

    place: tuple[int, int, int, int]
    phase: str
    forward: bool
    microbatch: int
    start_us: int
    end_us: int


def measured_timeline(
    problem: PipelineProblem, plan: PipelinePlan, spans: Iterable[Measured]
) -> Timeline:
    """The timeline of a replay; empty spans are left out."""
    seats = devices_of_replicas(problem, plan)
    names = process_names(problem.cluster.nodes)
    devices = problem.cluster.devices
    used = sorted(d for group in seats.values() for d in group)
    tracks = tuple(
        Track(process=names[devices[d].node], device=d, stream=stream)
        for d in used
        for stream in (COMPUTE, SEND, GRADIENTS, WAIT)
    )
    index = {(track.device, track.stream): i for i, track in enumerate(tracks)}
    drawn = []
    for span in spans:
        pipeline, stage, replica, member = span.place
        device = seats[pipeline, stage, replica][member]
        if span.end_us > span.start_us:
            drawn.append(_span(span, index[device, _STREAMS[span.phase]]))
    return Timeline(name="measured", tracks=tracks, spans=tuple(drawn))


def scaled(timeline: Timeline, factor: float) -> Timeline:
    """The timeline with all times multiplied."""
    return replace(
        timeline,
        spans=tuple(
            replace(s, start_us=round(s.start_us * factor), end_us=round(s.end_us * factor))
            for s in timeline.spans
        ),
    )


def _span(span: Measured, track: int) -> Span:
    kind = FORWARD if span.forward else BACKWARD
    words = {
        "compute": (f"{kind} {span.microbatch}", kind),
        "send": ("activations" if span.forward else "gradients", SEND),
        "wait": (f"wait for {kind} {span.microbatch}", WAIT),
        "sync": ("sums of gradients", GRADIENTS),
        "update": (UPDATE, UPDATE),
    }
    name, category = words[span.phase]
    pipeline, stage, replica, _ = span.place
    args = {"pipeline": pipeline, "stage": stage, "replica": replica}
    return Span(
        track=track,
        name=name,
        category=category,
        start_us=span.start_us,
        end_us=span.end_us,
        args=args | ({"microbatch": span.microbatch} if span.microbatch >= 0 else {}),
    )
