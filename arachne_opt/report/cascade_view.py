"""A cascade plan as the values that a page draws."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from arachne_opt.cascade.facts import Facts
from arachne_opt.cascade.memory import Span as MemorySpan
from arachne_opt.cascade.memory import memory_over_time
from arachne_opt.cascade.plan import Placement
from arachne_opt.cascade.simulate import Simulation, simulate
from arachne_opt.report.cascade_timeline import HAND_OFF, planned_timeline
from arachne_opt.report.cluster_map import Links, cluster_json, rows_json
from arachne_opt.report.columns import Interned, columns, memory_json
from arachne_opt.report.headline import headline_json
from arachne_opt.report.slack import critical_path, slack_us
from arachne_opt.report.subject import CascadeSubject, Measured
from arachne_opt.report.why_cascade import Binding, Reasons
from arachne_opt.report.wording import count, percent, seconds, spans_of
from arachne_opt.units import PPM

_TASK = (
    *("name", "kind", "shape", "owner", "degree", "start", "end", "rows", "penalty", "memory"),
    *("slack", "nodes", "why", "again"),
)
_WORDS = {
    "owner": "cascade",
    "shape": "clips × shape",
    "degree": "degree",
    "group": "node",
}
_COLUMNS = [
    {"key": "name", "title": "task", "type": "text"},
    {"key": "shape", "title": "clips × shape", "type": "text"},
    {"key": "degree", "title": "degree", "type": "number"},
    {"key": "rows", "title": "devices", "type": "rows"},
    {"key": "start", "title": "start", "type": "time"},
    {"key": "duration", "title": "duration", "type": "time"},
    {"key": "measured", "title": "measured", "type": "time"},
    {"key": "area", "title": "device time", "type": "time"},
    {"key": "slack", "title": "slack", "type": "time"},
    {"key": "penalty", "title": "penalty", "type": "factor"},
    {"key": "memory", "title": "memory", "type": "bytes"},
]


def cascade_view(subject: CascadeSubject) -> dict[str, Any]:
    """All that the page shows of a plan, as JSON values."""
    return _View(subject).to_json()


class _View:
    def __init__(self, subject: CascadeSubject) -> None:
        self.subject = subject
        self.problem, self.plan = subject.problem, subject.plan
        self.facts = Facts(self.problem)
        self.simulation: Simulation = simulate(self.problem, self.plan)
        self.slack = slack_us(self.problem, self.plan)
        self.reasons = Reasons(self.problem, self.plan, self.slack)
        self.kinds, self.shapes, self.why = Interned(), Interned(), Interned()

    def to_json(self) -> dict[str, Any]:
        """The whole view."""
        whole_us = self.problem.iteration_us(self.plan.makespan_us)
        rows = [self._task(p) for p in self.plan.placements]
        devices = self.problem.cluster.devices
        resident = dict(self.problem.resident_bytes)
        measured = self.subject.measured
        return {
            "kind": "cascade",
            "id": self.subject.record.id,
            "title": self.subject.record.name,
            "end_us": self.plan.makespan_us,
            "bound_us": self.subject.record.bound_us,
            "headline": headline_json(
                self.subject, idle_share=self.simulation.idle_share, whole_us=whole_us
            ),
            "words": _WORDS,
            "columns": [c for c in _COLUMNS if measured or c["key"] != "measured"],
            "rows": rows_json(
                self.problem.cluster,
                [d.index for d in devices],
                [d.node for d in devices],
                [node.name for node in self.problem.cluster.nodes],
            ),
            "tasks": columns(_TASK, rows),
            "kinds": self.kinds.values,
            "shapes": self.shapes.values,
            "why": self.why.values,
            "story": self._story(),
            "degrees": self._degrees(),
            "waits": self._waits(),
            "measured": self._measured(measured) if measured else None,
            "memory": self._memory(),
            "resident": [resident.get(d.device_type.name, 0) for d in devices],
            "cluster": cluster_json(self.problem.cluster, self._links()),
        }

    def _task(self, p: Placement) -> tuple[Any, ...]:
        cascade = self.problem.cascades[p.cascade]
        task = cascade.tasks[p.task]
        kind = self.facts.kinds(p.devices)[0].name
        option = self.facts.option(task, p.degree, kind, recompute=p.recompute)
        return (
            f"{task.name} {p.cascade}",
            self.kinds.number(task.name),
            self.shapes.number(cascade.label or cascade.id),
            p.cascade,
            p.degree,
            p.start_us,
            p.end_us,
            spans_of(p.devices),
            self.facts.penalty_ppm(p.devices) / PPM,
            option.memory_bytes if option else 0,
            self.slack[p.cascade, p.task],
            self.facts.node_count(p.devices),
            self.why.number(self.reasons.of(p).to_json()),
            p.recompute,
        )

    def _story(self) -> list[str]:
        """What holds for the whole plan, in sentences."""
        path = critical_path(self.problem, self.plan, self.slack)
        critical = sum(1 for us in self.slack.values() if us == 0)
        lines = [_binding_text(self.reasons.binding, self.subject.record.bound_us)]
        if path:
            shown = [f"{self._name(p)} ({seconds(p.end_us - p.start_us)})" for p in path[-8:]]
            start = "… → " if len(path) > len(shown) else ""
            lines.append(f"The end is held by {start}{' → '.join(shown)}.")
            longest = max(path, key=lambda p: p.end_us - p.start_us)
            lines.append(f"The longest of these: {' '.join(self.reasons.of(longest).lines)}")
        lines.append(
            f"{critical:,} of {count(len(self.slack), 'task')} are critical; the others could "
            "end later without moving the end of the plan."
        )
        lines.append(self._crossing_text())
        return [*lines, self._idle_text()]

    def _crossing_text(self) -> str:
        crossing = [t for t in self.simulation.tasks if t.penalty_ppm > PPM]
        if not crossing:
            return "No group leaves its node, so that none pays a penalty."
        paid = sum(
            len(t.devices) * ((t.end_us - t.start_us) * (t.penalty_ppm - PPM) // t.penalty_ppm)
            for t in crossing
        )
        share = paid / max(1, sum(self.simulation.busy_us))
        text = f"{count(len(crossing), 'group')} of {len(self.simulation.tasks):,} span nodes"
        return f"{text}; their penalties are {percent(share)} of all busy device time."

    def _idle_text(self) -> str:
        """Where the devices are idle: before their first task, between tasks, after the last."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for p in self.plan.placements:
            for d in p.devices:
                first.setdefault(d, p.start_us)
                last[d] = max(last.get(d, 0), p.end_us)
        end_us, usable = self.plan.makespan_us, self.simulation.usable_devices
        total = max(1, end_us * usable)
        unused = usable - len(first)
        idle = total - sum(self.simulation.busy_us)
        head, tail = sum(first.values()), sum(end_us - us for us in last.values())
        between = idle - head - tail - unused * end_us
        parts = [
            f"{percent(tail / total)} after the last task of a device",
            f"{percent(between / total)} between tasks",
            f"{percent(head / total)} before the first",
        ]
        if unused:
            parts.append(f"{percent(unused * end_us / total)} on devices that are not used at all")
        return f"Idle device time: {', '.join(parts)}."

    def _name(self, p: Placement) -> str:
        return f"{self.problem.cascades[p.cascade].tasks[p.task].name} {p.cascade}"

    def _degrees(self) -> list[dict[str, Any]]:
        """How many tasks of each kind and shape got each degree."""
        found: Counter[tuple[str, str, int]] = Counter()
        for p in self.plan.placements:
            cascade = self.problem.cascades[p.cascade]
            found[cascade.tasks[p.task].name, cascade.label or cascade.id, p.degree] += 1
        return [
            {"kind": kind, "shape": shape, "degree": degree, "count": n}
            for (kind, shape, degree), n in sorted(found.items())
        ]

    def _waits(self) -> dict[str, list[Any]]:
        """Hand-offs as thin bars on the devices that wait for them."""
        timeline = planned_timeline(self.problem, self.plan)
        same: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for span in timeline.spans:
            if span.category == HAND_OFF:
                key = (span.start_us, span.end_us, span.args["cascade"])
                same[key].append(timeline.tracks[span.track].device)
        return columns(
            ("name", "start", "end", "rows"),
            [(f"{HAND_OFF} {c}", a, b, spans_of(rows)) for (a, b, c), rows in same.items()],
        )

    def _measured(self, measured: Measured) -> dict[str, Any]:
        """Spans by device, and the measured times of the tasks in the order of the plan."""
        index = {(p.cascade, p.task): i for i, p in enumerate(self.plan.placements)}
        names = [[t.name for t in c.tasks] for c in self.problem.cascades]
        rows = []
        for span in measured.timeline.compute_spans():
            cascade = span.args["cascade"]
            task = index[cascade, names[cascade].index(span.category)]
            device = measured.timeline.tracks[span.track].device
            rows.append((task, device, span.start_us, span.end_us))
        return {
            "label": "rehearsed" if measured.emulated else "measured",
            "run": measured.run_id,
            "end_us": max((row[3] for row in rows), default=0),
            "spans": columns(("task", "row", "start", "end"), rows),
        }

    def _memory(self) -> list[dict[str, Any]]:
        spans = [
            MemorySpan(
                cascade=p.cascade,
                task=p.task,
                devices=p.devices,
                start_us=p.start_us,
                end_us=p.end_us,
                recompute=p.recompute,
            )
            for p in self.plan.placements
        ]
        uses = memory_over_time(self.problem, spans)
        return memory_json(
            {d: [(use.time_us, use.total_bytes) for use in found] for d, found in uses.items()}
        )

    def _links(self) -> dict[str, Links]:
        groups, moves = Links(), Links()
        placed = {(p.cascade, p.task): p for p in self.plan.placements}
        for p in self.plan.placements:
            nodes = {self.facts.node_of(d) for d in p.devices}
            groups.add_group(nodes, p.end_us - p.start_us)
            task = self.problem.cascades[p.cascade].tasks[p.task]
            for index in set(task.predecessors):
                before = placed[p.cascade, index]
                moved_us = self.facts.handoff_us(task.input_bytes, before.devices, p.devices)
                source = {self.facts.node_of(d) for d in before.devices}
                for a in source if moved_us and not nodes & source else ():
                    moves.add(a, min(nodes), moved_us)
        return {"groups": groups, "hand-offs": moves}


def _binding_text(found: Binding, bound_us: int) -> str:
    area, chain = seconds(found.area_us), seconds(found.chain_us)
    if found.by_area:
        text = f"Device time binds: the cheapest degree of every task alone fills {area} of every "
        text += f"device, the longest chain takes {chain}."
    else:
        text = f"The longest chain binds: cascade {found.chain_cascade} takes {chain} at its "
        text += f"fastest, all cheapest degrees together fill {area} of every device."
    return f"{text} The proven bound is {seconds(bound_us)}."
