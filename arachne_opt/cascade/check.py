"""Checks a cascade plan against its problem; shares no code with the solvers."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.memory import Span, memory_over_time
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Option
from arachne_opt.units import PPM, US_PER_S, format_bytes


class Fault(enum.StrEnum):
    """Kinds of violation."""

    WRONG_PROBLEM = "wrong-problem"
    UNKNOWN_CASCADE = "unknown-cascade"
    UNKNOWN_TASK = "unknown-task"
    MISSING_TASK = "missing-task"
    DUPLICATE_TASK = "duplicate-task"
    NO_DEVICES = "no-devices"
    REPEATED_DEVICE = "repeated-device"
    DEVICE_OUT_OF_RANGE = "device-out-of-range"
    FORBIDDEN_DEVICE = "forbidden-device"
    OUTSIDE_PIN = "outside-pin"
    MIXED_TYPES = "mixed-types"
    NO_SUCH_OPTION = "no-such-option"
    MEMORY = "memory"
    MEMORY_OVER_TIME = "memory-over-time"
    NEGATIVE_START = "negative-start"
    END_BEFORE_START = "end-before-start"
    TOO_SHORT = "too-short"
    PRECEDENCE = "precedence"
    OVERLAP = "overlap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One reason why a plan is not legal; ``where`` names the cascade and the task."""

    code: Fault
    where: str
    text: str

    def __str__(self) -> str:
        """Code, place and text on one line."""
        return f"[{self.code}] {self.where}: {self.text}"


def check_plan(problem: CascadeProblem, plan: CascadePlan) -> tuple[Violation, ...]:
    """Every violation of a plan; none for a legal one.

    A task may take longer than its option and may start later than it could: both are legal.
    """
    return tuple(_Checker(problem).violations(plan))


class _Checker:
    def __init__(self, problem: CascadeProblem) -> None:
        self.problem = problem
        self.facts = Facts(problem)

    def violations(self, plan: CascadePlan) -> Iterator[Violation]:
        """All violations: the plan as a whole, then each task alone, then tasks together."""
        if plan.problem_name != self.problem.name:
            text = f"the plan is for {plan.problem_name!r}, the problem is {self.problem.name!r}"
            yield Violation(code=Fault.WRONG_PROBLEM, where="plan", text=text)
        known = []
        for p in plan.placements:
            unknown = self.unknown(p)
            if unknown:
                yield unknown
                continue
            known.append(p)
            yield from self.group(p)
            yield from self.times(p)
        yield from self.completeness(known)
        yield from self.precedence(known)
        yield from self.overlaps(known)
        if self.problem.resident_bytes:
            yield from self.memory_over_time(known)

    def unknown(self, p: Placement) -> Violation | None:
        """The violation of a placement that names no task of the problem."""
        where = f"cascade {p.cascade}, task {p.task}"
        count = len(self.problem.cascades)
        if not 0 <= p.cascade < count:
            text = f"the problem has {count} cascades, numbered 0 to {count - 1}"
            return Violation(code=Fault.UNKNOWN_CASCADE, where=where, text=text)
        tasks = self.problem.cascades[p.cascade].tasks
        if not 0 <= p.task < len(tasks):
            names = ", ".join(f"{i} {task.name}" for i, task in enumerate(tasks))
            text = f"the cascade has the tasks {names}"
            return Violation(code=Fault.UNKNOWN_TASK, where=where, text=text)
        return None

    def group(self, p: Placement) -> Iterator[Violation]:
        """The group alone: some devices, each once, all there, of one type, with an option."""
        where = self.where(p)
        if not p.devices:
            yield Violation(code=Fault.NO_DEVICES, where=where, text="runs on no device")
            return
        if twice := sorted(d for d, n in Counter(p.devices).items() if n > 1):
            text = f"the group {_numbers(p.devices)} has {_numbers(twice)} more than once"
            yield Violation(code=Fault.REPEATED_DEVICE, where=where, text=text)
        if outside := [d for d in p.devices if not self.exists(d)]:
            text = f"no {_numbers(outside)}: the devices are 0 to {self.facts.device_count - 1}"
            yield Violation(code=Fault.DEVICE_OUT_OF_RANGE, where=where, text=text)
            return
        yield from self.permission(p)
        kinds = self.facts.kinds(p.devices)
        if len(kinds) > 1:
            names = " and ".join(kind.name for kind in kinds)
            text = f"the group {_numbers(p.devices)} mixes {names}; a group has one type"
            yield Violation(code=Fault.MIXED_TYPES, where=where, text=text)
            return
        yield from self.option_fits(p)

    def permission(self, p: Placement) -> Iterator[Violation]:
        """The devices may be used: none is forbidden, all are those that the task is pinned to."""
        where, forbidden = self.where(p), set(self.problem.forbidden_devices)
        if barred := sorted(forbidden.intersection(p.devices)):
            text = f"uses {_numbers(barred)}, which no task may use"
            yield Violation(code=Fault.FORBIDDEN_DEVICE, where=where, text=text)
        pin = self.problem.cascades[p.cascade].tasks[p.task].allowed_devices
        if pin is not None and (outside := sorted(set(p.devices) - set(pin))):
            text = f"uses {_numbers(outside)}, but is pinned to {_numbers(pin)}"
            yield Violation(code=Fault.OUTSIDE_PIN, where=where, text=text)

    def option_fits(self, p: Placement) -> Iterator[Violation]:
        """The degree is an option on this type, and its memory fits."""
        kind, option = self.facts.kinds(p.devices)[0], self.option(p)
        if option is None:
            options = self.problem.cascades[p.cascade].tasks[p.task].options
            here = [o for o in options if o.device_type in (None, kind.name)]
            legal = sorted({o.degree for o in here if o.recompute == p.recompute})
            offer = f"it has {', '.join(map(str, legal))}" if legal else "it has none there"
            way = " that computes activations again" if p.recompute else ""
            text = f"no option of degree {p.degree} on {kind.name}{way}; {offer}"
            yield Violation(code=Fault.NO_SUCH_OPTION, where=self.where(p), text=text)
            return
        if option.memory_bytes > kind.memory_bytes:
            text = f"degree {p.degree} needs {format_bytes(option.memory_bytes)} per device, "
            text += f"{kind.name} has {format_bytes(kind.memory_bytes)}"
            yield Violation(code=Fault.MEMORY, where=self.where(p), text=text)

    def times(self, p: Placement) -> Iterator[Violation]:
        """Start and end alone: from 0 on, and long enough for the option times the penalty."""
        where = self.where(p)
        if p.start_us < 0:
            text = f"starts at {_seconds(p.start_us)}"
            yield Violation(code=Fault.NEGATIVE_START, where=where, text=text)
        if p.end_us <= p.start_us:
            text = f"starts at {_seconds(p.start_us)}, ends at {_seconds(p.end_us)}"
            yield Violation(code=Fault.END_BEFORE_START, where=where, text=text)
            return
        option = self.option(p)
        if option is None:
            return
        need_us, has_us = self.facts.duration_us(option, p.devices), p.end_us - p.start_us
        if has_us < need_us:
            factor = self.facts.penalty_ppm(p.devices) / PPM
            text = f"lasts {_seconds(has_us)}; degree {p.degree} on {_numbers(p.devices)} takes "
            text += f"{_seconds(option.duration_us)} x {factor:.6f} = {_seconds(need_us)}"
            yield Violation(code=Fault.TOO_SHORT, where=where, text=text)

    def completeness(self, known: list[Placement]) -> Iterator[Violation]:
        """Every task of the problem is placed exactly once."""
        times = Counter((p.cascade, p.task) for p in known)
        for c, t, _ in self.problem.tasks():
            if times[c, t] == 1:
                continue
            code = Fault.DUPLICATE_TASK if times[c, t] else Fault.MISSING_TASK
            text = f"is placed {times[c, t]} times" if times[c, t] else "is not in the plan"
            yield Violation(code=code, where=self.name(c, t), text=text)

    def precedence(self, known: list[Placement]) -> Iterator[Violation]:
        """start(task) >= end(predecessor) + hand-off, for every predecessor."""
        placed = defaultdict(list)
        for p in known:
            placed[p.cascade, p.task].append(p)
        for p in known:
            task = self.problem.cascades[p.cascade].tasks[p.task]
            for before in (b for i in set(task.predecessors) for b in placed[p.cascade, i]):
                moved_us = self.handoff_us(task.input_bytes, before, p)
                if p.start_us >= before.end_us + moved_us:
                    continue
                text = f"starts at {_seconds(p.start_us)}; {self.task_name(before)} ends at "
                text += f"{_seconds(before.end_us)} and hands over in {_seconds(moved_us)}"
                yield Violation(code=Fault.PRECEDENCE, where=self.where(p), text=text)

    def overlaps(self, known: list[Placement]) -> Iterator[Violation]:
        """No device runs two tasks at once; one violation per pair of tasks."""
        on_device = defaultdict(list)
        for number, p in enumerate(known):
            for d in {d for d in p.devices if p.end_us > p.start_us}:
                on_device[d].append(number)
        clashes: dict[tuple[int, int], list[int]] = defaultdict(list)
        for device, numbers in sorted(on_device.items()):
            for pair in _overlapping(known, numbers):
                clashes[pair].append(device)
        for (first, second), devices in sorted(clashes.items()):
            a, b = known[first], known[second]
            text = f"starts at {_seconds(b.start_us)}, but {self.where(a)} holds "
            text += f"{_numbers(devices)} until {_seconds(a.end_us)}"
            yield Violation(code=Fault.OVERLAP, where=self.where(b), text=text)

    def memory_over_time(self, known: list[Placement]) -> Iterator[Violation]:
        """At any time resident part or task and parked results fit; one violation per device.

        A task that is too large by itself is another violation.
        """
        spans = [
            Span(
                cascade=p.cascade,
                task=p.task,
                devices=tuple(dict.fromkeys(p.devices)),
                start_us=p.start_us,
                end_us=p.end_us,
                recompute=p.recompute,
            )
            for p in known
            if p.end_us > p.start_us and self.option(p) is not None
        ]
        for device, uses in memory_over_time(self.problem, spans).items():
            worst = max(
                (use for use in uses if use.parked_bytes),
                key=lambda use: use.total_bytes,
                default=None,
            )
            kind = self.facts.node(device).device_type
            if worst is None or worst.total_bytes <= kind.memory_bytes:
                continue
            names = " and ".join(self.name(s.cascade, s.task) for s in worst.running)
            text = f"at {_seconds(worst.time_us)} it holds {format_bytes(worst.total_bytes)}: "
            text += f"{format_bytes(worst.base_bytes)} of {names or 'what is resident'} and "
            text += f"{format_bytes(worst.parked_bytes)} of parked results; "
            text += f"{kind.name} has {format_bytes(kind.memory_bytes)}"
            yield Violation(code=Fault.MEMORY_OVER_TIME, where=f"device {device}", text=text)

    def exists(self, device: int) -> bool:
        """Whether the cluster has a device."""
        return 0 <= device < self.facts.device_count

    def option(self, p: Placement) -> Option | None:
        """The option that a placement uses, None where its group or degree is not legal."""
        if not p.devices or not all(map(self.exists, p.devices)):
            return None
        kinds = self.facts.kinds(p.devices)
        if len(kinds) != 1:
            return None
        task = self.problem.cascades[p.cascade].tasks[p.task]
        return self.facts.option(task, p.degree, kinds[0].name, recompute=p.recompute)

    def handoff_us(self, size_bytes: int, before: Placement, after: Placement) -> int:
        """Hand-off between two placements, 0 where a group is not legal anyway."""
        groups = before.devices, after.devices
        if not all(group and all(map(self.exists, group)) for group in groups):
            return 0
        return self.facts.handoff_us(size_bytes, *groups)

    def where(self, p: Placement) -> str:
        """Cascade and task of a placement, for people."""
        return self.name(p.cascade, p.task)

    def name(self, cascade: int, task: int) -> str:
        """A task, for people."""
        item = self.problem.cascades[cascade]
        return f"cascade {cascade} ({item.label or item.id}), {item.tasks[task].name}"

    def task_name(self, p: Placement) -> str:
        """Name of the task of a placement."""
        return self.problem.cascades[p.cascade].tasks[p.task].name


def _overlapping(known: list[Placement], numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of placements on one device that overlap in time, earlier one first."""
    line = sorted(numbers, key=lambda n: (known[n].start_us, n))
    for position, first in enumerate(line):
        for second in line[position + 1 :]:
            if known[second].start_us >= known[first].end_us:
                break
            yield first, second


def _numbers(devices: Iterable[int]) -> str:
    found = tuple(devices)
    return f"device{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


def _seconds(time_us: int) -> str:
    # All six digits: a plan that is short by a microsecond should show it.
    return f"{time_us / US_PER_S:.6f} s"
