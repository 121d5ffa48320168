"""What ran where and when, whatever it was: the one form that traces, pictures and pages draw.

A timeline has tracks, one for each stream of each device, and spans on them. Planned and measured
times of the same work are two timelines with the same tracks; ``trace.trace_of`` shows them beside
each other, ``plot.plot_timelines`` draws them.

A runtime that has measured something of its own needs no more than this:

    tracks = tuple(Track(process=node, device=d, stream="compute") for d in devices)
    spans = [Span(track=0, name="forward 3", category="forward", start_us=0, end_us=1200)]
    trace = trace_of([planned, Timeline(name="measured", tracks=tracks, spans=tuple(spans))])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One stream of one device.

    Args:
        process: what the device belongs to, such as its node; tracks of equal process are drawn
            together.
        device: number of the device in the whole cluster, or of the rank.
        stream: ``compute`` for what keeps the device busy, or a name such as ``send``.
    """

    process: str
    device: int
    stream: str = COMPUTE

    @property
    def title(self) -> str:
        """For people: ``device 3`` or ``device 3 send``."""
        plain = f"device {self.device}"
        return plain if self.stream == COMPUTE else f"{plain} {self.stream}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Work on a track from one time to another, in µs since the start of the iteration.

    Args:
        track: index into the tracks of the timeline.
        category: kind of work, such as ``encode``; equal kinds are drawn alike.
        args: what is shown beside it: JSON values by name.
    """

    track: int
    name: str
    category: str
    start_us: int
    end_us: int
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A result that goes from the end of one span to the start of another, by their indices."""

    name: str
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Spans of one iteration on the tracks of a cluster; ``name`` says how they are known.

    Args:
        name: ``planned``, ``measured`` or another word that stands before the processes.
    """

    name: str
    tracks: tuple[Track, ...]
    spans: tuple[Span, ...]
    arrows: tuple[Arrow, ...] = ()

    @property
    def end_us(self) -> int:
        """End of the last span."""
        return max((span.end_us for span in self.spans), default=0)

    @property
    def processes(self) -> tuple[str, ...]:
        """Processes in the order of their first track."""
        return tuple(dict.fromkeys(track.process for track in self.tracks))

    def compute_spans(self) -> Iterator[Span]:
        """The spans that keep devices busy."""
        return (span for span in self.spans if self.tracks[span.track].stream == COMPUTE)
