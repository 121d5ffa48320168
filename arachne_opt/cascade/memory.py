"""Memory of the devices over the time of a plan, for checker and simulator.

A device holds what is resident whatever runs; while it runs a task, the memory of the task's
option, which has the resident part in it; and the results of ended tasks that wait there for the
start of the task that takes them («parked»), in equal slices over the producer's group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.problem import CascadeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One task on its group, as planned or as simulated."""

    cascade: int
    task: int
    devices: tuple[int, ...]
    start_us: int
    end_us: int
    recompute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Memory of a device from a moment on.

    Args:
        running: the tasks that run, none or one in a legal plan.
        base_bytes: the resident part, or more where a task runs.
        parked_bytes: results that wait on the device.
    """

    time_us: int
    running: tuple[Span, ...]
    base_bytes: int
    parked_bytes: int

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.base_bytes + self.parked_bytes


def memory_over_time(problem: CascadeProblem, spans: Iterable[Span]) -> dict[int, list[Use]]:
    """The memory of every used device, at each moment when it changes."""
    book = _Book(problem)
    known = tuple(spans)
    for span in known:
        book.run(span)
    for before, after in _handed_over(problem, known):
        book.park(before, after)
    return {device: list(book.uses(device)) for device in sorted(book.moments)}


def peak_bytes(problem: CascadeProblem, spans: Iterable[Span]) -> tuple[int, ...]:
    """The most that each device holds at one time; unused devices hold the resident part."""
    facts, resident = Facts(problem), dict(problem.resident_bytes)
    uses = memory_over_time(problem, spans)
    least = [resident.get(facts.node(d).device_type.name, 0) for d in range(facts.device_count)]
    return tuple(
        max([idle, *(use.total_bytes for use in uses.get(d, ()))]) for d, idle in enumerate(least)
    )


def _handed_over(problem: CascadeProblem, spans: tuple[Span, ...]) -> Iterator[tuple[Span, Span]]:
    """Producer and consumer of every result that takes memory."""
    placed = {(span.cascade, span.task): span for span in spans}
    for span in spans:
        task = problem.cascades[span.cascade].tasks[span.task]
        for index in set(task.predecessors) if task.input_bytes else ():
            before = placed.get((span.cascade, index))
            if before is not None and before.end_us < span.start_us:
                yield before, span


class _Book:
    """Moments of change per device: spans that begin and end, bytes that come and go."""

    def __init__(self, problem: CascadeProblem) -> None:
        self._problem = problem
        self._facts = Facts(problem)
        self._resident = dict(problem.resident_bytes)
        self.moments: dict[int, list[tuple[int, int, int, Span]]] = {}

    def run(self, span: Span) -> None:
        """A task runs from its start to its end."""
        for device in span.devices:
            rows = self.moments.setdefault(device, [])
            rows += [(span.start_us, 1, 0, span), (span.end_us, -1, 0, span)]

    def park(self, before: Span, after: Span) -> None:
        """A result waits from the end of one task to the start of another."""
        size = self._problem.cascades[after.cascade].tasks[after.task].input_bytes
        each = -(-size // len(before.devices))
        for device in before.devices:
            rows = self.moments.setdefault(device, [])
            rows += [(before.end_us, 0, each, before), (after.start_us, 0, -each, before)]

    def uses(self, device: int) -> Iterator[Use]:
        """The memory after each moment at which something changes."""
        running: list[Span] = []
        parked = 0
        rows = sorted(self.moments[device], key=lambda row: row[0])
        for at, (time_us, turn, size, span) in enumerate(rows):
            parked += size
            if turn > 0:
                running.append(span)
            elif turn < 0 and span in running:
                running.remove(span)
            if at + 1 == len(rows) or rows[at + 1][0] > time_us:
                yield Use(
                    time_us=time_us,
                    running=tuple(running),
                    base_bytes=self._base_bytes(device, running),
                    parked_bytes=parked,
                )

    def _base_bytes(self, device: int, running: list[Span]) -> int:
        kind = self._facts.node(device).device_type.name
        found = [self._resident.get(kind, 0)]
        for span in running:
            task = self._problem.cascades[span.cascade].tasks[span.task]
            option = self._facts.option(task, len(span.devices), kind, recompute=span.recompute)
            found.append(option.memory_bytes if option is not None else 0)
        return max(found)
