"""``arachne report``, and pictures of ``arachne simulate``."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.cli.report_sources import find_subject, subject_of
from arachne_opt.db.store import PlanStore
from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.report import PipelineReport, StepReport
from arachne_opt.executor.pipeline.report import RankSpan as PipelineSpan
from arachne_opt.executor.pipeline.report import report_to_json as pipeline_report_to_json
from arachne_opt.executor.report import (
    IterationReport,
    RankSpan,
    ReplayReport,
    TaskReport,
    report_to_json,
)
from arachne_opt.pipeline.layout import Layout
from arachne_opt.records import RunRecord
from arachne_opt.report.pipeline_timeline import devices_of_replicas, simulated
from arachne_opt.workload import Shape
from tests.cli.conftest import Run
from tests.report.subjects import pipeline_subject, two_by_four


def replayed(subject, *, names=None, speed=1.0, emulated=False, late_us=7):
    """A run in which every rank was a little later; ``names`` are other ids of the clips."""
    problem = subject.problem
    tasks = []
    for p in subject.plan.placements:
        cascade = problem.cascades[p.cascade]
        start, end = round(p.start_us / speed), round(p.end_us / speed)
        tasks.append(
            TaskReport(
                micro_batch=names[p.cascade] if names else cascade.id,
                task=cascade.tasks[p.task].name,
                shape=Shape(frames=1, height=64, width=64),
                clips=1,
                text_tokens=0,
                device_type="x",
                penalty_ppm=1_000_000,
                planned_start_us=start,
                planned_end_us=end,
                ranks=tuple(
                    RankSpan(rank=d, start_us=start + late_us, end_us=end + late_us)
                    for d in p.devices
                ),
            )
        )
    planned_us = round(subject.plan.makespan_us / speed)
    iteration = IterationReport(
        name=problem.name,
        step=4,
        loss=1.0,
        planned_us=planned_us,
        measured_us=planned_us + late_us,
        sync_us=1,
        optimizer_us=1,
        overhead_us=1,
        tasks=tuple(tasks),
    )
    report = ReplayReport(
        model="toy",
        world_size=problem.cluster.device_count,
        device="cpu",
        threads_per_rank=1,
        weight_rule="clip",
        iterations=(iteration,),
        emulated=emulated,
    )
    return RunRecord(
        plan_id=subject.record.id,
        status="done",
        world_size=report.world_size,
        planned_us=planned_us,
        measured_us=planned_us + late_us,
        report=report_to_json(report),
        id="run1",
    )


@pytest.fixture
def store(tmp_path: Path):
    with PlanStore.open(str(tmp_path / "plans.db")) as opened:
        yield opened


def kept(store, subject):
    return replace(subject, record=store.add_plan(replace(subject.record, id="", created_at="")))


def data_of(path: Path):
    html = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])


def test_a_plan_is_reported_with_its_trace_and_what_rules_would_take(
    arachne: Run, store, tmp_path: Path
) -> None:
    plan = kept(store, two_by_four())
    out, trace = tmp_path / "r.html", tmp_path / "t.json"
    code, stdout, err = arachne("report", plan.record.id[:12], "-o", out, "--trace", trace)
    assert (code, stdout) == (0, "")
    assert f"report written to {out}" in err
    view = data_of(out)["views"][0]
    assert view["end_us"] == plan.plan.makespan_us
    titles = [bar["title"] for bar in view["headline"]["bars"]]
    assert titles[:2] == ["proven bound", "this plan"]
    assert {"best single degree", "KnapFormer"} <= set(titles)
    assert json.loads(trace.read_text())["otherData"]["plan"] == plan.record.id
    assert out.stat().st_mode == trace.stat().st_mode


def test_without_baselines_no_rule_is_asked(arachne: Run, store, tmp_path: Path) -> None:
    plan = kept(store, two_by_four())
    out = tmp_path / "r.html"
    assert arachne("report", plan.record.id, "-o", out, "--no-baselines")[0] == 0
    assert len(data_of(out)["views"][0]["headline"]["bars"]) == 2


def test_a_run_is_reported_over_its_plan(arachne: Run, store, tmp_path: Path) -> None:
    plan = kept(store, two_by_four())
    run = store.add_run(replayed(plan))
    out, trace = tmp_path / "r.html", tmp_path / "t.json"
    args = ["report", run.id, "-o", out, "--no-baselines", "--trace", trace]
    assert arachne(*args)[0] == 0
    view = data_of(out)["views"][0]
    assert view["measured"]["label"] == "measured"
    assert view["measured"]["end_us"] == plan.plan.makespan_us + 7
    titles = {
        e["args"]["name"].split()[0]
        for e in json.loads(trace.read_text())["traceEvents"]
        if e["name"] == "process_name"
    }
    assert titles == {"planned", "measured"}


def test_two_plans_are_compared(arachne: Run, store, tmp_path: Path) -> None:
    subject = two_by_four()
    plan = kept(store, subject)
    first = subject.plan.placements[0]
    moved = replace(subject.plan, placements=(*subject.plan.placements[1:], first))
    other = kept(store, replace(subject, plan=moved))
    out = tmp_path / "r.html"
    args = ["report", plan.record.id, "-o", out, "--no-baselines", "--compare", other.record.id]
    assert arachne(*args)[0] == 0
    document = data_of(out)
    assert len(document["views"]) == 2
    assert document["comparison"]["rows"][0][0] == "makespan"


def test_plans_of_two_kinds_are_not_compared(arachne: Run, store, tmp_path: Path) -> None:
    a, b = kept(store, two_by_four()), kept(store, pipeline_subject())
    args = ["report", a.record.id, "-o", tmp_path / "r.html", "--compare", b.record.id]
    code, _, err = arachne(*args)
    assert code == 2
    assert "a pipeline plan" in err
    assert not (tmp_path / "r.html").exists()


def test_an_unknown_id_names_both_lists(arachne: Run, store, tmp_path: Path) -> None:
    code, _, err = arachne("report", "zzzz", "-o", tmp_path / "r.html")
    assert code == 2
    assert "arachne plans list" in err
    assert "arachne runs list" in err


def test_a_place_that_cannot_be_written_is_told(arachne: Run, store, tmp_path: Path) -> None:
    plan = kept(store, two_by_four())
    code, _, err = arachne("report", plan.record.id, "-o", tmp_path / "no" / "r.html")
    assert code == 2
    assert "cannot write" in err


@pytest.mark.parametrize("make", [two_by_four, pipeline_subject])
def test_pictures_and_traces_of_both_kinds_are_written(
    arachne: Run, store, tmp_path: Path, make
) -> None:
    pytest.importorskip("matplotlib")
    plan = kept(store, make())
    svg, png, trace = (tmp_path / name for name in ("g.svg", "g.png", "t.json"))
    code, out, _ = arachne("simulate", plan.record.id, "--plot", svg, "--trace", trace)
    assert code == 0
    assert plan.record.name in out
    assert svg.read_text().startswith("<?xml")
    assert json.loads(trace.read_text())["traceEvents"]
    args = ["report", plan.record.id, "-o", tmp_path / "r.html", "--no-baselines", "--plot", png]
    assert arachne(*args)[0] == 0
    assert png.read_bytes().startswith(b"\x89PNG")
    code, _, err = arachne("simulate", plan.record.id, "--plot", tmp_path / "g.gif")
    assert code == 2
    assert "does not end in .png" in err


def test_a_pipeline_is_simulated_in_figures(arachne: Run, store) -> None:
    plan = kept(store, pipeline_subject())
    body = json.loads(arachne("simulate", plan.record.id, "--format", "json")[1])
    assert body["format"] == "arachne.pipeline-simulation/1"
    done = simulated(plan.problem, plan.plan)
    assert body["iteration_s"] == done.iteration_s
    assert [s["bubble"] for s in body["stages"]] == [s.bubble for s in done.stages]


# -------------------------------------------------------------------------------- runs and plans


def test_a_rehearsal_at_another_speed_is_stretched_to_the_plan() -> None:
    subject = two_by_four()
    found = subject_of(subject.record, replayed(subject, speed=4.0, emulated=True, late_us=0))
    assert found.measured.stretch == pytest.approx(4.0)
    assert found.measured.timeline.name == "rehearsed"
    ends = sorted(s.end_us for s in found.measured.timeline.spans)
    planned = sorted(p.end_us for p in subject.plan.placements for _ in p.devices)
    # Times of the run were rounded to microseconds before they were multiplied.
    assert ends == pytest.approx(planned, abs=4)


def test_a_run_of_an_equal_problem_with_other_clips_is_matched_by_its_times() -> None:
    subject = two_by_four()
    names = [f"other{i}" for i in range(4)]
    found = subject_of(subject.record, replayed(subject, names=names))
    assert {c.id for c in found.problem.cascades} == set(names)
    moved = {(found.problem.cascades[p.cascade].id, p.task): p for p in found.plan.placements}
    for p in subject.plan.placements:
        same = moved[names[p.cascade], p.task]
        assert (same.devices, same.start_us, same.end_us) == (p.devices, p.start_us, p.end_us)


def test_a_run_that_is_not_of_the_plan_is_refused() -> None:
    subject = two_by_four()
    run = replayed(subject)
    iteration = run.report["iterations"][0]
    other = {**run.report, "iterations": [{**iteration, "tasks": iteration["tasks"][:-1]}]}
    with pytest.raises(InputError, match="not those of its plan"):
        subject_of(subject.record, replace(run, report=other))
    late = [{**t, "micro_batch": "x", "planned_start_us": 5} for t in iteration["tasks"]]
    other = {**run.report, "iterations": [{**iteration, "tasks": late}]}
    with pytest.raises(InputError, match="is not in the stored plan"):
        subject_of(subject.record, replace(run, report=other))


def test_a_beginning_that_is_a_plans_and_a_runs_is_refused(store) -> None:
    plan = kept(store, two_by_four())
    run = store.add_run(replayed(plan))
    both = next(n for n in range(16) if plan.record.id[:n] != run.id[:n]) - 1
    with pytest.raises(InputError, match="begins the id of plan"):
        find_subject(store, plan.record.id[:both])
    assert find_subject(store, run.id).measured.run_id == run.id


def pipeline_run(subject, *, rank_shift=0, spans=True):
    """A run whose ranks did all operations at the simulated times."""
    members = {
        (m.pipeline, m.stage, m.replica, m.tp_index): m.rank for m in Layout(subject.plan).members
    }
    seats = devices_of_replicas(subject.problem, subject.plan)
    found = [
        PipelineSpan(
            rank=members[t.pipeline, t.stage, t.replica, member] + rank_shift,
            phase="compute",
            forward=t.op.forward,
            microbatch=t.op.microbatch,
            start_us=round(1e6 * t.start_s),
            end_us=round(1e6 * t.end_s),
        )
        for t in simulated(subject.problem, subject.plan).tasks
        for member in range(len(seats[t.pipeline, t.stage, t.replica]))
    ]
    planned_us = subject.record.objective_us
    step = StepReport(
        step=0,
        loss=1.0,
        norm=1.0,
        tokens=1,
        learning_rate=0.1,
        planned_us=planned_us,
        measured_us=planned_us,
        stages=(),
    )
    report = PipelineReport(
        model="m",
        plan_id=subject.record.id,
        world_size=len(members),
        device="cpu",
        steps=(step,),
        spans=tuple(found) if spans else (),
    )
    return RunRecord(
        plan_id=subject.record.id,
        status="done",
        world_size=len(members),
        planned_us=planned_us,
        measured_us=planned_us,
        report=pipeline_report_to_json(report),
        id="run2",
    )


def test_a_run_of_a_pipeline_lies_over_its_plan(arachne: Run, store, tmp_path: Path) -> None:
    plan = kept(store, pipeline_subject())
    run = store.add_run(pipeline_run(plan))
    out = tmp_path / "r.html"
    assert arachne("report", run.id, "-o", out, "--no-baselines")[0] == 0
    view = data_of(out)["views"][0]
    spans, tasks = view["measured"]["spans"], view["tasks"]
    assert len(spans["task"]) > 0
    for task, start, end in zip(spans["task"], spans["start"], spans["end"], strict=True):
        assert (start, end) == (tasks["start"][task], tasks["end"][task])


def test_a_run_of_a_pipeline_without_spans_says_so_and_one_with_more_ranks_is_refused() -> None:
    from arachne_opt.report.document import view_of

    subject = pipeline_subject()
    view = view_of(subject_of(subject.record, pipeline_run(subject, spans=False)))
    assert view["measured"] is None
    assert any("kept no times" in line for line in view["story"])
    with pytest.raises(InputError, match="beyond the"):
        subject_of(subject.record, pipeline_run(subject, rank_shift=100))
