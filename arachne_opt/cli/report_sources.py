"""Finds what a report is about: stored plans and runs, as subjects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from arachne_opt.cascade.check import check_plan
from arachne_opt.cascade.plan import CascadePlan, Placement, plan_from_json
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.cascade.problem_json import problem_from_json
from arachne_opt.errors import InputError
from arachne_opt.records import PlanRecord, RunRecord
from arachne_opt.report.cascade_timeline import measured_timeline
from arachne_opt.report.subject import CascadeSubject, Measured, Subject

if TYPE_CHECKING:
    from arachne_opt.db.store import PlanStore
    from arachne_opt.executor.report import IterationReport, TaskReport
    from arachne_opt.pipeline.plan import PipelinePlan
    from arachne_opt.pipeline.problem import PipelineProblem

# A rehearsal whose planned time differs by more was run at another speed.
_SAME_SPEED = 1e-3


def find_subject(store: PlanStore, key: str) -> Subject:
    """The plan with an id, or the plan of the run with an id, together with that run.

    Raises:
        InputError: neither a plan nor a run has such an id, or both do, or the run cannot be
            matched with its plan.
    """
    found: list[PlanRecord | RunRecord] = []
    reasons = []
    for get in (store.get_plan, store.get_run):
        try:
            found.append(get(key))
        except InputError as error:
            reasons.append(error.what)
    if len(found) > 1:
        what = f"{key!r} begins the id of plan {found[0].id} and of run {found[1].id}"
        raise InputError(what, hint="more digits")
    if not found:
        what = "; ".join(reasons)
        raise InputError(what, hint="an id from `arachne plans list` or `arachne runs list`")
    (record,) = found
    if isinstance(record, RunRecord):
        return subject_of(store.get_plan(record.plan_id), record)
    return subject_of(record)


def subject_of(record: PlanRecord, run: RunRecord | None = None) -> Subject:
    """A stored plan, and what a run of it measured.

    Raises:
        InputError: the run cannot be matched with the plan.
    """
    if record.kind == "pipeline":
        return _pipeline(record, run)
    problem = problem_from_json(record.problem)
    plan = plan_from_json(record.plan, problem)
    if run is None:
        return CascadeSubject(record=record, problem=problem, plan=plan)
    from arachne_opt.executor.report import report_from_json

    report = report_from_json(run.report)
    iteration = report.iterations[-1]
    problem, plan = _as_it_ran(problem, plan, iteration)
    measured = _measured(problem, plan, iteration, run, emulated=report.emulated)
    return CascadeSubject(record=record, problem=problem, plan=plan, measured=measured)


def _pipeline(record: PlanRecord, run: RunRecord | None) -> Subject:
    from arachne_opt.pipeline.problem_json import problem_from_json as pipeline_problem_from_json
    from arachne_opt.planning.pipeline_service import pipeline_plan_of_record
    from arachne_opt.report.subject import PipelineSubject

    problem, plan = pipeline_problem_from_json(record.problem), pipeline_plan_of_record(record)
    measured = None if run is None else _measured_pipeline(problem, plan, run)
    return PipelineSubject(record=record, problem=problem, plan=plan, measured=measured)


def _measured_pipeline(problem: PipelineProblem, plan: PipelinePlan, run: RunRecord) -> Measured:
    """What the ranks of a run did in its last step.

    Raises:
        InputError: the run has other ranks than the plan.
    """
    from arachne_opt.executor.pipeline.report import report_from_json
    from arachne_opt.pipeline.layout import Layout
    from arachne_opt.report.pipeline_measured import Measured as Work
    from arachne_opt.report.pipeline_measured import measured_timeline, scaled

    report = report_from_json(run.report)
    members = Layout(plan).members
    if any(not 0 <= span.rank < len(members) for span in report.spans):
        what = f"it has ranks beyond the {len(members)} of its plan"
        raise InputError(what, where=f"run {run.id}")
    work = []
    for span in report.spans:
        m = members[span.rank]
        work.append(
            Work(
                place=(m.pipeline, m.stage, m.replica, m.tp_index),
                phase=span.phase,
                forward=span.forward,
                microbatch=span.microbatch,
                start_us=span.start_us,
                end_us=span.end_us,
            )
        )
    timeline = scaled(measured_timeline(problem, plan, work), report.speed)
    return Measured(
        run_id=run.id,
        timeline=replace(timeline, name=_word(report.emulated)),
        planned_us=run.planned_us,
        measured_us=run.measured_us,
        emulated=report.emulated,
        stretch=report.speed,
        step=report.steps[-1].step if report.steps else 0,
    )


def _as_it_ran(
    problem: CascadeProblem, plan: CascadePlan, iteration: IterationReport
) -> tuple[CascadeProblem, CascadePlan]:
    """Problem and plan with the names and devices of the run.

    A plan that was found in the database may be of an equal problem with other clips, whose nodes
    and micro-batches have other numbers. Times, degrees and kinds of task are the same; so tasks
    are matched by them.

    Raises:
        InputError: that is not so, or the plan is not legal on the devices of the run.
    """
    names = {cascade.id for cascade in problem.cascades}
    if {task.micro_batch for task in iteration.tasks} == names:
        return problem, plan
    number = _cascades_by_times(problem, plan, iteration)
    moved = []
    for task in iteration.tasks:
        cascade = number[task.micro_batch]
        tasks = [t.name for t in problem.cascades[cascade].tasks]
        index = tasks.index(task.task)
        planned = next(p for p in plan.placements if (p.cascade, p.task) == (cascade, index))
        moved.append(replace(planned, devices=task.devices))
    ids = {cascade: name for name, cascade in number.items()}
    renamed = tuple(replace(c, id=ids[i]) for i, c in enumerate(problem.cascades))
    problem = replace(problem, cascades=renamed)
    found = CascadePlan(problem_name=problem.name, placements=tuple(moved))
    if check_plan(problem, found):
        raise InputError("its tasks ran on other groups than the stored plan has", where="run")
    return problem, found


def _cascades_by_times(
    problem: CascadeProblem, plan: CascadePlan, iteration: IterationReport
) -> dict[str, int]:
    """The cascade of each micro-batch: the first free one with the same tasks at the same times."""
    stretch = _stretch(plan, iteration)
    free: dict[tuple[tuple[str, int, int], ...], list[int]] = defaultdict(list)
    rows: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    for p in plan.placements:
        name = problem.cascades[p.cascade].tasks[p.task].name
        rows[p.cascade].append((name, round(p.start_us / stretch), p.degree))
    for cascade, mine in sorted(rows.items()):
        free[tuple(sorted(mine))].append(cascade)
    asked: dict[str, list[TaskReport]] = defaultdict(list)
    for task in iteration.tasks:
        asked[task.micro_batch].append(task)
    number = {}
    for name, tasks in asked.items():
        key = tuple(sorted((t.task, t.planned_start_us, len(t.ranks)) for t in tasks))
        if not free.get(key):
            raise InputError(f"micro-batch {name} is not in the stored plan", where="run")
        number[name] = free[key].pop(0)
    return number


def _stretch(plan: CascadePlan, iteration: IterationReport) -> float:
    """By how much the run was to be faster than the plan, after ``--speed``."""
    ratio = plan.makespan_us / iteration.planned_us if iteration.planned_us else 1.0
    return ratio if abs(ratio - 1) > _SAME_SPEED else 1.0


def _measured(
    problem: CascadeProblem,
    plan: CascadePlan,
    iteration: IterationReport,
    run: RunRecord,
    *,
    emulated: bool,
) -> Measured:
    index = {cascade.id: c for c, cascade in enumerate(problem.cascades)}
    stretch = _stretch(plan, iteration)
    placements = []
    for task in iteration.tasks:
        cascade = index[task.micro_batch]
        names = [planned.name for planned in problem.cascades[cascade].tasks]
        placements += [
            Placement(
                cascade=cascade,
                task=names.index(task.task),
                devices=(span.rank,),
                start_us=round(span.start_us * stretch),
                end_us=round(span.end_us * stretch),
            )
            for span in task.ranks
        ]
    _require_whole(plan, placements, run)
    return Measured(
        run_id=run.id,
        timeline=measured_timeline(problem, plan, placements, _word(emulated)),
        planned_us=iteration.planned_us,
        measured_us=iteration.measured_us,
        emulated=emulated,
        stretch=stretch,
        step=iteration.step,
    )


def _word(emulated: bool) -> str:
    return "rehearsed" if emulated else "measured"


def _require_whole(plan: CascadePlan, measured: list[Placement], run: RunRecord) -> None:
    """Every device of every planned task was measured, and nothing else."""
    planned = Counter((p.cascade, p.task, d) for p in plan.placements for d in p.devices)
    ran: Mapping[tuple[int, int, int], int] = Counter(
        (p.cascade, p.task, p.devices[0]) for p in measured
    )
    if ran != planned:
        raise InputError("its tasks are not those of its plan", where=f"run {run.id}")
