"""Why each task of a cascade plan got its degree: what the next ones would gain and cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem, Option, Task
from arachne_opt.report.wording import count, device_time, seconds
from arachne_opt.units import PPM, format_bytes

_MEMORY = "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The reasons for one task.

    Args:
        lines: sentences for people.
        options: a row per option: degree, µs, device-µs, bytes, verdict, whether it was chosen,
            whether it computes activations again.
    """

    lines: tuple[str, ...]
    options: tuple[tuple[int, int, int, int, str, bool, bool], ...]

    def to_json(self) -> dict[str, Any]:
        """For the page."""
        return {"lines": list(self.lines), "options": [list(row) for row in self.options]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What the two simplest bounds of a problem say.

    Args:
        area_us: device time of the cheapest option of every task, over the devices.
        chain_us: longest of the cascades' fastest chains.
        chain_cascade: the cascade that has it.
    """

    area_us: int
    chain_us: int
    chain_cascade: int

    @property
    def by_area(self) -> bool:
        """Whether device time binds harder than the longest chain."""
        return self.area_us >= self.chain_us


def binding(problem: CascadeProblem) -> Binding:
    """Area and chain bound of a problem, without penalties and hand-offs."""
    area = 0
    chains = []
    for cascade in problem.cascades:
        ends: list[int] = []
        for task in cascade.tasks:
            usable = problem.usable_options(task)
            area += min(o.area_us for o in usable)
            start = max((ends[p] for p in task.predecessors), default=0)
            ends.append(start + min(o.duration_us for o in usable))
        chains.append(max(ends))
    devices = problem.cluster.device_count - len(problem.forbidden_devices)
    longest = max(range(len(chains)), key=chains.__getitem__)
    return Binding(area_us=-(-area // devices), chain_us=chains[longest], chain_cascade=longest)


class Reasons:
    """Tells for every placement of one plan why it has its degree."""

    def __init__(
        self, problem: CascadeProblem, plan: CascadePlan, slack: Mapping[tuple[int, int], int]
    ) -> None:
        self.problem = problem
        self.slack = slack
        self.facts = Facts(problem)
        self.binding = binding(problem)
        self.makespan_us = plan.makespan_us
        self.devices = problem.cluster.device_count - len(problem.forbidden_devices)
        self.widest_node = max(node.device_count for node in problem.cluster.nodes)

    def of(self, p: Placement) -> Why:
        """The reasons for one placement."""
        task = self.problem.cascades[p.cascade].tasks[p.task]
        kind = self.facts.kinds(p.devices)[0].name
        here = sorted(
            (o for o in task.options if o.device_type in (None, kind)),
            key=lambda o: (o.degree, o.recompute),
        )
        mine = [o for o in here if o.recompute == p.recompute]
        at = next(i for i, o in enumerate(mine) if o.degree == p.degree)
        chosen = mine[at]
        slack = self.slack[p.cascade, p.task]
        rows = tuple(
            (
                o.degree,
                o.duration_us,
                o.area_us,
                o.memory_bytes,
                self._verdict(task, o, chosen, slack),
                o is chosen,
                o.recompute,
            )
            for o in here
        )
        parts = [self._head(p, task, kind, slack)]
        parts.append(self._narrower(task, mine[at - 1] if at else None, chosen, slack))
        after = mine[at + 1] if at + 1 < len(mine) else None
        parts.append(self._wider(task, after, chosen, slack))
        other = next((o for o in here if o.degree == p.degree and o is not chosen), None)
        parts += [self._other_way(task, other, chosen)] if other else []
        parts.append(self._bound())
        return Why(lines=tuple(parts), options=rows)

    def _head(self, p: Placement, task: Task, kind: str, slack: int) -> str:
        cascade = self.problem.cascades[p.cascade]
        label = f" ({cascade.label})" if cascade.label else ""
        took = p.end_us - p.start_us
        text = f"Cascade {p.cascade}{label} got degree {p.degree} for {task.name}: "
        text += f"{seconds(took)} on {count(p.degree, kind + ' device')}, "
        text += f"{device_time(took * p.degree)}"
        penalty = self.facts.penalty_ppm(p.devices)
        if penalty > PPM:
            nodes = self.facts.node_count(p.devices)
            text += f", slowed by {100 * (penalty / PPM - 1):.0f} % for spanning {nodes} nodes"
        if slack == 0:
            return f"{text}. It is critical: a second more here is a second more for the plan."
        return f"{text}. It could end {seconds(slack)} later without moving the end of the plan."

    def _narrower(self, task: Task, other: Option | None, chosen: Option, slack: int) -> str:
        if other is None:
            return "No narrower degree is offered."
        if reason := self._unusable(task, other):
            return f"Degree {other.degree} {reason}."
        longer, saved = other.duration_us - chosen.duration_us, chosen.area_us - other.area_us
        text = f"Degree {other.degree} would take {seconds(abs(longer))} "
        text += "longer" if longer >= 0 else "less"
        if saved <= 0:
            text += f" and use {device_time(-saved)} more: nothing speaks for it here"
        else:
            text += f" and free {device_time(saved)}, {self._share(saved)} of the whole cluster"
        if longer <= 0 < saved:
            text += ": better on both counts, so that either the other tasks stood in its way or "
            text += "the search did not get to it"
        elif longer > slack:
            late = seconds(longer - slack)
            text += f"; in this order the plan would end up to {late} later" if saved > 0 else ""
        elif saved > 0:
            text += "; it would fit here, but what ends last does not wait for these devices"
        return text + "."

    def _wider(self, task: Task, other: Option | None, chosen: Option, slack: int) -> str:
        if other is None:
            return "No wider degree is offered."
        if reason := self._unusable(task, other):
            return f"Degree {other.degree} {reason}."
        gain, cost = chosen.duration_us - other.duration_us, other.area_us - chosen.area_us
        if gain <= 0:
            return f"Degree {other.degree} would not be faster ({seconds(other.duration_us)})."
        text = f"Degree {other.degree} would be {seconds(gain)} shorter"
        if cost > 0:
            text += f", but take {device_time(cost)} more from the others, "
            text += f"{self._share(cost)} of the whole cluster"
        else:
            text += " at no more device time, but needs more devices free at once"
        if other.degree > self.widest_node >= chosen.degree:
            worst = self.problem.cluster.penalty.ppm(0) / PPM
            text += (
                f"; its group would leave the node and be up to {100 * (worst - 1):.0f} % slower"
            )
        if slack > 0:
            text += "; nothing would end earlier, as this task is not critical"
        return text + "."

    def _other_way(self, task: Task, other: Option, chosen: Option) -> str:
        """The same degree with activations kept, or computed again."""
        way = "Computing activations again" if other.recompute else "Keeping activations"
        if reason := self._unusable(task, other):
            return f"{way} at this degree {reason}."
        more = other.duration_us - chosen.duration_us
        text = f"{way} at this degree would take {seconds(abs(more))} "
        text += f"{'longer' if more >= 0 else 'less'} with {format_bytes(other.memory_bytes)} "
        return f"{text}a device instead of {format_bytes(chosen.memory_bytes)}."

    def _bound(self) -> str:
        b = self.binding
        if b.by_area:
            text = (
                "Device time is what is scarce in this iteration: the cheapest degrees alone fill"
            )
            return (
                f"{text} {seconds(b.area_us)} of every device, so that width must pay for itself."
            )
        text = f"The longest chain binds: cascade {b.chain_cascade} takes {seconds(b.chain_us)}"
        return f"{text} at its fastest, whatever the others do."

    def _verdict(self, task: Task, option: Option, chosen: Option, slack: int) -> str:
        """A few words for the table of degrees."""
        if option is chosen:
            return "chosen"
        if reason := self._unusable(task, option):
            return reason
        more = option.duration_us - chosen.duration_us
        if more > slack:
            return f"ends {seconds(more - slack)} too late"
        return f"−{seconds(-more)}" if more < 0 else f"+{seconds(more)}, in its slack"

    def _unusable(self, task: Task, option: Option) -> str | None:
        """Why an option cannot be used, as the end of a sentence about it."""
        reason = self.problem.why_unusable(task, option)
        if reason == _MEMORY:
            types = self.problem.cluster.device_types
            kind = option.device_type or max(types, key=lambda n: types[n].memory_bytes)
            there = format_bytes(types[kind].memory_bytes)
            return f"does not fit: it needs {format_bytes(option.memory_bytes)} of {there}"
        return f"cannot be used: {reason}" if reason else None

    def _share(self, area_us: int) -> str:
        return seconds(-(-area_us // self.devices))
