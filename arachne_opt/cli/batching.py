"""``--group clips``: micro-batches chosen together with their placement, beside the bucketed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click

from arachne_opt.cli.options import limits_of
from arachne_opt.cli.output import emit_json, emit_table, percent
from arachne_opt.cli.progress import ProgressLine, catch_interrupts, search_text
from arachne_opt.cli.session import PlanFile, Session, answer_json
from arachne_opt.cli.sources import (
    GroupingOptions,
    build_problems,
    load_costs,
    load_workload,
    parse_degrees,
)
from arachne_opt.cluster import Cluster
from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.base import CostModel
from arachne_opt.costs.batching import build_batching_problem
from arachne_opt.errors import INTERRUPTED, OUTSIDE_GAP
from arachne_opt.planning.service import DEFAULT_SOLVER, Answer, BatchingAnswer, PlanService
from arachne_opt.settings import database_url
from arachne_opt.solvers.base import Progress
from arachne_opt.units import format_seconds
from arachne_opt.workload import Iteration, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One iteration in both groupings, each with its plan."""

    buckets: Iteration
    bucketed: Answer
    clips: BatchingAnswer

    @property
    def iteration(self) -> Iteration:
        """The grouping of the shorter plan."""
        return self.clips.iteration if self._clips_win else self.buckets

    @property
    def answer(self) -> Answer:
        """The shorter plan."""
        return self.clips.answer if self._clips_win else self.bucketed

    @property
    def gap(self) -> float | None:
        """Gap of the shorter plan to the bound of all batchings."""
        bound_us = min(self.clips.bound_us, self.answer.record.objective_us)
        return self.answer.record.objective_us / bound_us - 1 if bound_us else None

    @property
    def change(self) -> float:
        """Makespan of the clips' plan over that of the buckets, minus 1."""
        return self.clips.answer.record.objective_us / self.bucketed.record.objective_us - 1

    @property
    def _clips_win(self) -> bool:
        return self.clips.answer.record.objective_us <= self.bucketed.record.objective_us


@dataclass
class ClipSession(Session):
    """Plans each iteration twice: as the buckets group it, then with its clips free."""

    comparisons: list[Comparison] = field(default_factory=list)

    def run_clips(
        self,
        service: PlanService,
        workload: Workload,
        cluster: Cluster,
        costs: CostModel,
        *,
        degrees: tuple[int, ...] | None,
        max_tokens: int | None,
    ) -> None:
        """Fills ``comparisons``; stops after the current plan when the user asks to."""
        self.run(service, build_problems(workload, cluster, costs, degrees), None)
        if self.interrupted:
            return
        line = ProgressLine()
        with catch_interrupts() as interrupts:
            for iteration, bucketed in zip(workload.iterations, self.answers, strict=True):
                head = f"[{len(self.comparisons) + 1}/{len(self.answers)}] {iteration.name} clips"
                line.show(head, force=True)
                problem = build_batching_problem(
                    iteration, cluster, costs, degrees=degrees, max_tokens=max_tokens
                )
                plan = partial(
                    service.plan_batching,
                    problem,
                    self.limits,
                    bucketed=(iteration, bucketed),
                    solver=self.solver,
                    use_cache=self.use_cache,
                    on_progress=partial(_show, line, head),
                    should_stop=interrupts.pressed,
                )
                found = interrupts.run(plan)
                line.clear()
                pair = Comparison(buckets=iteration, bucketed=bucketed, clips=found)
                self.comparisons.append(pair)
                if interrupts.pressed():
                    self.interrupted = True
                    return

    def exit_code(self, asked_gap: float | None) -> int:
        """0, 4 where a plan is outside a gap that was asked for, 130 after Ctrl-C."""
        if self.interrupted:
            return INTERRUPTED
        gaps = [pair.gap for pair in self.comparisons]
        outside = asked_gap is not None and any(gap is None or gap > asked_gap for gap in gaps)
        return OUTSIDE_GAP if outside else 0


def _show(line: ProgressLine, head: str, progress: Progress) -> None:
    line.show(search_text(progress, head))


def solve_clips(options: dict[str, Any]) -> int:
    """``arachne solve cascade --group clips``."""
    if options["manifest"] is None or options["instances"] is not None:
        raise click.UsageError("--group clips needs --workload MANIFEST: clips, not instances")
    cluster, costs = _priced(options, options["model"])
    grouping = GroupingOptions.taken_from(options)
    workload = load_workload(options["manifest"], grouping, costs.model)
    session = _session(options, options["solver"], use_cache=not options["no_cache"])
    try:
        with ExitStack() as stack:
            from arachne_opt.db.store import PlanStore

            store = stack.enter_context(PlanStore.open(database_url(options["db_url"])))
            degrees = parse_degrees(options["degrees"])
            session.run_clips(
                PlanService(store),
                workload,
                cluster,
                costs,
                degrees=degrees,
                max_tokens=grouping.max_tokens,
            )
            out = stack.enter_context(PlanFile(options["out"])) if options["out"] else None
            for pair in session.comparisons:
                if out:
                    out.add(pair.answer)
    finally:
        show_comparisons(session.comparisons, options["form"])
    return session.exit_code(options["gap"])


def chosen_workload(
    service: PlanService, workload: Workload, options: dict[str, Any], max_tokens: int | None
) -> tuple[Workload, list[Answer]] | None:
    """A workload in the better of both groupings, with its plans; None after Ctrl-C.

    Says on stderr what the choice changes.
    """
    table = options["cost_table"]
    cluster, costs = _priced(options, None if table else options["model"])
    session = _session(options, DEFAULT_SOLVER, use_cache=True)
    degrees = parse_degrees(options.get("degrees"))
    session.run_clips(service, workload, cluster, costs, degrees=degrees, max_tokens=max_tokens)
    for pair in session.comparisons:
        bucketed, clips = (a.record.objective_us for a in (pair.bucketed, pair.clips.answer))
        what = f"{pair.buckets.name}: {format_seconds(bucketed)} as the buckets group it,"
        click.echo(f"{what} {format_seconds(clips)} with chosen micro-batches", err=True)
    if session.interrupted:
        return None
    chosen = tuple(pair.iteration for pair in session.comparisons)
    answers = [pair.answer for pair in session.comparisons]
    return Workload(name=workload.name, iterations=chosen), answers


def _priced(options: dict[str, Any], model: str | None) -> tuple[Cluster, CostModel]:
    if options["cluster"] is None:
        raise click.UsageError("--group clips needs --cluster FILE or a shorthand")
    cluster = read_cluster(options["cluster"])
    return cluster, load_costs(
        options["cost_table"],
        model,
        cluster,
        text_encoder=options["text_encoder"],
        recompute=options["recompute"],
        sharding=options.get("sharding", "zero1"),
    )


def _session(options: dict[str, Any], solver: str, *, use_cache: bool) -> ClipSession:
    return ClipSession(limits=limits_of(options), solver=solver, use_cache=use_cache)


def show_comparisons(comparisons: list[Comparison], form: str) -> None:
    """Prints both groupings of each iteration side by side."""
    if form == "json":
        emit_json("solve-clips", {"iterations": [_json(pair) for pair in comparisons]})
        return
    rows = []
    for pair in comparisons:
        bucketed, clips = pair.bucketed.record, pair.clips.answer.record
        row = [pair.answer.record.id[:12], pair.buckets.name]
        row += [str(len(pair.buckets.micro_batches)), format_seconds(bucketed.objective_us)]
        row += [str(len(pair.clips.iteration.micro_batches)), format_seconds(clips.objective_us)]
        row += [f"{100 * pair.change:+.1f} %", format_seconds(pair.clips.bound_us)]
        rows.append([*row, percent(pair.gap)])
    if rows:
        head = ["plan", "iteration", "buckets", "makespan", "chosen", "makespan", "change"]
        emit_table([*head, "bound of all", "gap"], rows)


def _json(pair: Comparison) -> dict[str, Any]:
    batches = [
        {"id": b.id, "shape": str(b.shape), "clips": [clip.id for clip in b.clips]}
        for b in pair.iteration.micro_batches
    ]
    return {
        "name": pair.buckets.name,
        "bucketed": answer_json(pair.bucketed),
        "clips": answer_json(pair.clips.answer),
        "bound_us": pair.clips.bound_us,
        "gap": pair.gap,
        "plan": pair.answer.record.id,
        "micro_batches": batches,
    }
