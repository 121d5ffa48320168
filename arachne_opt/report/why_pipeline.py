"""Why each stage of a pipeline plan is as it is: its load, other widths, and a row more or less."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from arachne_opt.pipeline.closed_form import price_plan
from arachne_opt.pipeline.facts import Facts
from arachne_opt.pipeline.plan import PipelinePlan, ReplicaKind, Stage
from arachne_opt.pipeline.problem import PipelineProblem
from arachne_opt.report.wording import count, percent, seconds
from arachne_opt.units import US_PER_S, format_bytes


def us(value_s: float) -> int:
    """Seconds of the tables in µs, for words and pictures."""
    return round(value_s * US_PER_S)


class StageReasons:
    """Tells for every stage of one plan why it is as it is."""

    def __init__(self, problem: PipelineProblem, plan: PipelinePlan) -> None:
        self.problem, self.plan = problem, plan
        self.facts = Facts(problem)
        self.price = price_plan(problem, plan)

    def of(self, p: int, i: int) -> dict[str, Any]:
        """Sentences and a table of widths for stage ``i`` of pipeline ``p``."""
        stage = self.plan.pipelines[p].stages[i]
        parts = [self._head(p, i, stage), self._load(p, i), self._memory(p, i, stage)]
        parts += [self._wider(p, i, stage), *self._rows(p, i, stage)]
        return {"lines": parts, "options": self._options(p, i)}

    def _head(self, p: int, i: int, stage: Stage) -> str:
        kinds = Counter(replica.kind.label for replica in stage.replicas)
        text = " and ".join(f"{n} × {label}" for label, n in kinds.items())
        text = f"Stage {i} of pipeline {p} holds rows {stage.first} to {stage.end - 1} on {text}"
        samples = self._samples(p, stage)
        text += f", {count(samples, 'sample')} per replica and micro-batch"
        return f"{text}{', with recomputation' if stage.recompute else ''}."

    def _load(self, p: int, i: int) -> str:
        part = self.price.pipelines[p]
        load, most = part.loads_s[i], max(part.loads_s)
        text = f"A micro-batch takes {seconds(us(part.compute_s[i]))} of compute and "
        text += f"{seconds(us(part.p2p_s[i]))} of sends"
        if i == part.bottleneck:
            return f"{text}: this is the bottleneck that all {part.microbatches:,} rounds wait for."
        below = percent(1 - load / most)
        return f"{text}, {below} less than the bottleneck, stage {part.bottleneck}."

    def _memory(self, p: int, i: int, stage: Stage) -> str:
        in_flight = len(self.plan.pipelines[p].stages) - i
        parts = []
        for kind in stage.kinds:
            need = self.memory_bytes(p, stage, kind, in_flight)
            there = self.problem.cluster.device_types[kind.device_type].memory_bytes
            parts.append(f"{format_bytes(need)} of {format_bytes(there)} ({kind.device_type})")
        flight = "1 micro-batch" if in_flight == 1 else f"{in_flight} micro-batches"
        return f"With {flight} in flight it needs {' and '.join(parts)}."

    def memory_bytes(self, p: int, stage: Stage, kind: ReplicaKind, in_flight: int) -> int:
        """Memory of a device of a replica with so many micro-batches in flight."""
        samples = self._samples(p, stage)
        need = self.facts.memory_bytes(stage, kind, samples, in_flight, zero1=self.plan.zero1)
        return math.ceil(need)

    def _wider(self, p: int, i: int, stage: Stage) -> str:
        kind = stage.replicas[0].kind
        samples = self._samples(p, stage)
        widths = sorted(
            s.tp
            for s in self.problem.tables.steps
            if s.device_type == kind.device_type and s.microbatch == samples and s.tp > kind.tp
        )
        if not widths:
            return f"No wider group than tp {kind.tp} was priced for {kind.device_type}."
        other = kind._replace(tp=widths[0])
        now, then = (self.compute_s(p, stage, k) for k in (kind, other))
        text = f"With tp {other.tp} a micro-batch would take {seconds(us(then))} instead of "
        text += f"{seconds(us(now))} of compute on {other.tp // kind.tp} times the devices"
        if i != self.price.pipelines[p].bottleneck:
            text += ", which would not shorten the rounds, as this is not the bottleneck"
        return text + "."

    def _rows(self, p: int, i: int, stage: Stage) -> list[str]:
        """What it would mean to give a row to the stage before or after."""
        stages = self.plan.pipelines[p].stages
        most = max(self.price.pipelines[p].loads_s)
        lines = []
        for j, mine, theirs in (
            (i - 1, (1, 0), (0, 1)),
            (i + 1, (0, -1), (-1, 0)),
        ):
            if not 0 <= j < len(stages) or stage.row_count < 2:
                continue
            less = replace(stage, first=stage.first + mine[0], end=stage.end + mine[1])
            more = replace(
                stages[j], first=stages[j].first + theirs[0], end=stages[j].end + theirs[1]
            )
            saved = self._slowest_s(p, stage) - self._slowest_s(p, less)
            load = self._slowest_s(p, more) + self.price.pipelines[p].p2p_s[j]
            row = stage.first if j < i else stage.end - 1
            text = f"Row {row} given to stage {j} would take {seconds(us(saved))} from here and "
            text += f"make stage {j} take {seconds(us(load))} per micro-batch"
            text += ", above the bottleneck of now" if load > most else ""
            lines.append(f"{text}.")
        return lines

    def _options(self, p: int, i: int) -> list[list[Any]]:
        """Widths of the first replica: tp, µs, device-µs, bytes, verdict, chosen, recomputed."""
        pipeline = self.plan.pipelines[p]
        stage = pipeline.stages[i]
        kind, samples = stage.replicas[0].kind, self._samples(p, stage)
        there = self.problem.cluster.device_types[kind.device_type].memory_bytes
        rows: list[list[Any]] = []
        for step in self.problem.tables.steps:
            if step.device_type != kind.device_type or step.microbatch != samples:
                continue
            other = kind._replace(tp=step.tp)
            took = us(self.compute_s(p, stage, other))
            need = self.memory_bytes(p, stage, other, len(pipeline.stages) - i)
            verdict = "chosen" if other == kind else f"for {kind.device_type}"
            if need > there:
                verdict = f"does not fit: it needs {format_bytes(need)} of {format_bytes(there)}"
            chosen = other == kind
            rows.append([step.tp, took, took * step.tp, need, verdict, chosen, stage.recompute])
        return sorted(rows)

    def compute_s(self, p: int, stage: Stage, kind: ReplicaKind) -> float:
        """Forward and backward of one micro-batch on a replica."""
        rows, samples = range(stage.first, stage.end), self._samples(p, stage)
        back = self.facts.backward_s(kind, samples, rows, recompute=stage.recompute)
        return self.facts.forward_s(kind, samples, rows) + back

    def _slowest_s(self, p: int, stage: Stage) -> float:
        return max(self.compute_s(p, stage, kind) for kind in stage.kinds)

    def _samples(self, p: int, stage: Stage) -> int:
        return self.plan.pipelines[p].batch // len(stage.replicas)
