"""A pipeline plan as the values that a page draws."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from arachne_opt.report.cluster_map import Links, cluster_json, rows_json
from arachne_opt.report.columns import Interned, columns, memory_json
from arachne_opt.report.headline import headline_json
from arachne_opt.report.pipeline_timeline import (
    BACKWARD,
    FORWARD,
    UPDATE,
    devices_of_replicas,
    planned_timeline,
    simulated,
)
from arachne_opt.report.subject import Measured, PipelineSubject
from arachne_opt.report.timeline import COMPUTE, Span
from arachne_opt.report.why_pipeline import StageReasons, us
from arachne_opt.report.wording import count, percent, seconds, spans_of

_TASK = (
    *("name", "kind", "shape", "owner", "degree", "start", "end", "rows", "penalty", "memory"),
    *("slack", "nodes", "why", "again"),
)
_WORDS = {"owner": "micro-batch", "shape": "stage", "degree": "tp", "group": "stage"}
_COLUMNS = [
    {"key": "name", "title": "operation", "type": "text"},
    {"key": "shape", "title": "stage", "type": "text"},
    {"key": "owner", "title": "micro-batch", "type": "number"},
    {"key": "degree", "title": "tp", "type": "number"},
    {"key": "rows", "title": "devices", "type": "rows"},
    {"key": "start", "title": "start", "type": "time"},
    {"key": "duration", "title": "duration", "type": "time"},
    {"key": "measured", "title": "measured", "type": "time"},
    {"key": "area", "title": "device time", "type": "time"},
]

_MOST_STAGES = 6

# (kind, pipeline, stage, micro-batch, start, end): operations of replicas that run in step.
Step = tuple[str, int, int, int, int, int]


def pipeline_view(subject: PipelineSubject) -> dict[str, Any]:
    """All that the page shows of a plan, as JSON values."""
    return _View(subject).to_json()


class _View:
    def __init__(self, subject: PipelineSubject) -> None:
        self.subject = subject
        self.problem, self.plan = subject.problem, subject.plan
        self.seats = devices_of_replicas(self.problem, self.plan)
        self.order = [d for devices in self.seats.values() for d in devices]
        self.row_of = {d: row for row, d in enumerate(self.order)}
        self.simulation = simulated(self.problem, self.plan)
        self.timeline = planned_timeline(self.problem, self.plan, self.simulation)
        self.reasons = StageReasons(self.problem, self.plan)
        self.kinds, self.shapes, self.why = Interned(), Interned(), Interned()
        for kind in (FORWARD, BACKWARD, UPDATE):
            self.kinds.number(kind)
        self.why_of = {
            (p, i): self.why.number(self.reasons.of(p, i)) for p, i, _ in self.plan.stages()
        }
        self.steps = self._steps()

    def to_json(self) -> dict[str, Any]:
        """The whole view."""
        end_us = us(self.simulation.iteration_s)
        measured = self._measured(self.subject.measured) if self.subject.measured else None
        tasks = [self._task(step, rows) for step, rows in self.steps.items()]
        return {
            "kind": "pipeline",
            "id": self.subject.record.id,
            "title": self.subject.record.name,
            "end_us": end_us,
            "bound_us": self.subject.record.bound_us,
            "headline": headline_json(self.subject, idle_share=self._idle(), whole_us=0),
            "words": _WORDS,
            "columns": [c for c in _COLUMNS if measured or c["key"] != "measured"],
            "rows": self._rows(),
            "tasks": columns(_TASK, tasks),
            "kinds": self.kinds.values,
            "shapes": self.shapes.values,
            "why": self.why.values,
            "story": self._story(),
            "degrees": [],
            "waits": self._waits(),
            "measured": measured,
            "memory": self._memory(),
            "resident": [0] * len(self.order),
            "cluster": cluster_json(self.problem.cluster, self._links()),
        }

    def _rows(self) -> dict[str, Any]:
        """Devices by pipeline, stage and replica; those that are not used have no row."""
        groups = Interned()
        group_of = []
        for (p, i, r), devices in self.seats.items():
            kind = self.plan.pipelines[p].stages[i].replicas[r].kind
            pipeline = f"p{p} " if len(self.plan.pipelines) > 1 else ""
            name = f"{pipeline}s{i} {kind.device_type} tp{kind.tp}"
            group_of += [groups.number(name)] * len(devices)
        return rows_json(self.problem.cluster, self.order, group_of, groups.values)

    def _steps(self) -> dict[Step, list[int]]:
        """Operations with the devices that run them at the same time for the same micro-batch."""
        found: dict[Step, list[int]] = defaultdict(list)
        for span in self.timeline.compute_spans():
            device = self.timeline.tracks[span.track].device
            found[_step(span)].append(self.row_of[device])
        return dict(sorted(found.items(), key=lambda item: (item[0][4], item[0][1:4])))

    def _task(self, step: Step, rows: list[int]) -> tuple[Any, ...]:
        kind, p, i, microbatch, start_us, end_us = step
        stage = self.plan.pipelines[p].stages[i]
        name = kind if kind == UPDATE else f"{kind} {microbatch}"
        nodes = {self.problem.cluster.devices[self.order[row]].node for row in rows}
        label = f"pipeline {p}, stage {i}: rows {stage.first}–{stage.end - 1}"
        return (
            name,
            self.kinds.number(kind),
            self.shapes.number(label),
            microbatch,
            stage.replicas[0].kind.tp,
            start_us,
            end_us,
            spans_of(rows),
            1.0,
            0,
            None,
            len(nodes),
            self.why_of[p, i],
            stage.recompute,
        )

    def _idle(self) -> float:
        """Part of the time of all devices in use that they compute nothing."""
        busy = sum((end - start) * len(rows) for (*_, start, end), rows in self.steps.items())
        return 1 - busy / max(1, len(self.order) * us(self.simulation.iteration_s))

    def _story(self) -> list[str]:
        """What holds for the whole plan, in sentences."""
        price = self.reasons.price
        slow = price.pipelines[price.slowest]
        fill, total = us(slow.fill_s + sum(slow.p2p_s)), us(price.iteration_s)
        lines = [
            f"Pipeline {price.slowest} is the slowest: {count(slow.microbatches, 'round')} of its "
            f"bottleneck, stage {slow.bottleneck}, take {seconds(us(slow.steady_s))}; filling and "
            f"draining {seconds(fill)}, the update {seconds(us(slow.update_s))}, gradient "
            f"exchange {seconds(us(price.sync_s))}."
        ]
        # Of many stages, those that wait most and least are enough.
        stages = sorted(self.simulation.stages, key=lambda s: s.bubble)
        shown = stages if len(stages) <= _MOST_STAGES else [*stages[:2], *stages[-2:]]
        for s in shown:
            compute = s.busy_s / self.simulation.iteration_s
            lines.append(
                f"Stage {s.stage} of pipeline {s.pipeline} computes {percent(compute)} of the "
                f"iteration, waits {percent(s.bubble)} of its pipeline's time and keeps up to "
                f"{s.in_flight:g} micro-batches."
            )
        if len(shown) < len(stages):
            lines.append(f"The waits of the other {len(stages) - len(shown)} stages lie between.")
        there = self.problem.cluster.device_count
        lines.append(f"{len(self.order):,} of {count(there, 'device')} are used.")
        played = us(self.simulation.iteration_s)
        lines.append(
            f"The closed form says {seconds(total)}, the event-driven simulation that is drawn "
            f"here {seconds(played)}."
        )
        if self.subject.measured and not self.subject.measured.timeline.spans:
            lines.append("The run kept no times of operations: only its last step has them.")
        return [*lines, *(f"Assumed: {note}" for note in self.problem.notes)]

    def _waits(self) -> dict[str, list[Any]]:
        """Messages and gradient exchanges as thin bars."""
        same: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for span in self.timeline.spans:
            track = self.timeline.tracks[span.track]
            if track.stream != COMPUTE:
                same[span.name, span.start_us, span.end_us].append(self.row_of[track.device])
        return columns(
            ("name", "start", "end", "rows"),
            [(name, a, b, spans_of(rows)) for (name, a, b), rows in same.items()],
        )

    def _measured(self, measured: Measured) -> dict[str, Any] | None:
        """Spans by device, each with the planned operation of the same name and device.

        None where the run kept none: only its last step has them.
        """
        planned: dict[tuple[str, int, int | None], int] = {}
        for index, ((kind, _, _, microbatch, _, _), rows) in enumerate(self.steps.items()):
            planned |= {(kind, microbatch, row): index for row in rows}
        rows_out = []
        for span in measured.timeline.compute_spans():
            row = self.row_of.get(measured.timeline.tracks[span.track].device)
            key = (span.category, span.args.get("microbatch", 0), row)
            if row is not None and key in planned:
                rows_out.append((planned[key], row, span.start_us, span.end_us))
        if not rows_out:
            return None
        return {
            "label": "rehearsed" if measured.emulated else "measured",
            "run": measured.run_id,
            "end_us": max((row[3] for row in rows_out), default=0),
            "spans": columns(("task", "row", "start", "end"), rows_out),
        }

    def _memory(self) -> list[dict[str, Any]]:
        """By the memory rule, with the micro-batches that are in flight at each moment."""
        changes: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        for task in self.simulation.tasks:
            seat = (task.pipeline, task.stage, task.replica)
            at = task.start_s if task.op.forward else task.end_s
            changes[seat].append((us(at), 1 if task.op.forward else -1))
        series: dict[int, list[tuple[int, int]]] = {}
        for (p, i, r), moments in changes.items():
            stage = self.plan.pipelines[p].stages[i]
            kind = stage.replicas[r].kind
            by_flight: dict[int, int] = {}
            points, flight = [(0, self.reasons.memory_bytes(p, stage, kind, 0))], 0
            for at, change in sorted(moments):
                flight += change
                if flight not in by_flight:
                    by_flight[flight] = self.reasons.memory_bytes(p, stage, kind, flight)
                points.append((at, by_flight[flight]))
            series |= dict.fromkeys((self.row_of[d] for d in self.seats[p, i, r]), points)
        return memory_json(series)

    def _links(self) -> dict[str, Links]:
        sends, rings = Links(), Links()
        node = {
            seat: self.problem.cluster.devices[devices[0]].node
            for seat, devices in self.seats.items()
        }
        for send in self.simulation.sends:
            a = node[send.pipeline, send.stage, send.replica]
            b = node[send.pipeline, send.to_stage, send.to_replica]
            if a != b:
                sends.add(a, b, us(send.end_s - send.start_s))
        synced = sum(us(s.end_s - s.start_s) for s in self.simulation.syncs)
        for p, i, stage in self.plan.stages():
            for r in range(len(stage.replicas) - 1):
                a, b = node[p, i, r], node[p, i, r + 1]
                if a != b:
                    rings.add(a, b, synced)
        return {"sends": sends, "gradients": rings}


def _step(span: Span) -> Step:
    microbatch = span.args.get("microbatch", 0)
    place = span.args["pipeline"], span.args["stage"]
    return (span.category, *place, microbatch, span.start_us, span.end_us)
