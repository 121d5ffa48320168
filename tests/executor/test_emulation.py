"""A rehearsal follows its plan with real processes, adds little to it, and is labelled."""

import json
import os
import signal
import time
from dataclasses import replace

import pytest

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.errors import InputError, RunError
from arachne_opt.executor.emulation import emulated_job, scaled_plan, task_overheads
from arachne_opt.executor.job_json import job_from_json, job_to_json
from arachne_opt.executor.launch import compose_forked, run_local
from arachne_opt.executor.report import (
    IterationReport,
    RankSpan,
    TaskReport,
    measurements,
    report_from_json,
    report_to_json,
    run_records,
)
from tests.executor.jobs import ODD, TASK_US, batch, mixed_iterations, problem_of
from tests.executor.processes import forked_ranks_of

PLANNED = mixed_iterations()


def rehearsal(**fields):
    problems = [it.problem for it in PLANNED]
    return emulated_job("hunyuanvideo-13b", problems, [it.plan for it in PLANNED], **fields)


def wide_plan(ranks):
    """Every degree from 1 to 8, which no model's heads would allow, and a cached cascade."""
    problem = problem_of(tuple(batch(name, ODD) for name in "abc"), ranks)
    bare = replace(
        problem.cascades[2], tasks=(replace(problem.cascades[2].tasks[1], predecessors=()),)
    )
    problem = replace(problem, cascades=(*problem.cascades[:2], bare))
    runs = (
        (0, 0, range(3), 0),
        (1, 0, range(3, 8), 0),
        (0, 1, range(6), 1),
        (1, 1, range(6, 8), 1),
        (2, 0, range(ranks), 2),
    )
    placements = tuple(
        Placement(
            cascade=c,
            task=t,
            devices=tuple(group),
            start_us=slot * 2 * TASK_US,
            end_us=(slot * 2 + 2) * TASK_US,
        )
        for c, t, group, slot in runs
    )
    return problem, CascadePlan(problem_name=problem.name, placements=placements)


def test_a_rehearsal_survives_json_and_says_that_it_is_one():
    job = rehearsal(plan_ids=("p", "q"))
    back = job_from_json(job_to_json(job))
    assert back == job
    assert back.model.emulated
    assert back.model.name == "emulated hunyuanvideo-13b"
    assert [it.plan_id for it in back.iterations] == ["p", "q"]


def test_times_are_scaled_and_order_and_groups_are_kept():
    plan = PLANNED[0].plan
    fast = scaled_plan(plan, 0.1)
    assert fast.makespan_us == plan.makespan_us // 10
    assert [p.devices for p in fast.placements] == [p.devices for p in plan.placements]
    with pytest.raises(InputError, match="the speed must be positive"):
        rehearsal(speed=0.0)


def test_the_overhead_of_a_task_counts_from_when_it_could_have_begun():
    def task(name, batch, ranks, begin, planned, took):
        spans = tuple(RankSpan(rank=r, start_us=begin, end_us=begin + took) for r in ranks)
        return TaskReport(
            micro_batch=batch,
            task=name,
            shape=ODD,
            clips=1,
            text_tokens=1,
            device_type="CPU",
            penalty_ppm=1_000_000,
            planned_start_us=0,
            planned_end_us=planned,
            ranks=spans,
        )

    tasks = (
        task("encode", "a", (0,), 5, 100, 102),
        task("encode", "b", (1,), 0, 300, 300),
        task("denoise", "a", (0, 2), 110, 50, 50),
        task("denoise", "b", (1, 2), 320, 10, 11),
    )
    row = IterationReport(
        name="it",
        step=0,
        loss=0.0,
        planned_us=1,
        measured_us=1,
        sync_us=0,
        optimizer_us=0,
        overhead_us=0,
        tasks=tasks,
    )
    assert task_overheads(row) == (7, 0, 3, 21)


def test_ranks_are_forked_from_one_process(tmp_path):
    command = compose_forked(tmp_path / "job.json", 32, tmp_path / "report.json")
    assert command[1:4] == ["-m", "arachne_opt.executor.fork_ranks", "32"]


@pytest.fixture(scope="module")
def report():
    problem, plan = wide_plan(8)
    return run_local(emulated_job("wan2.1-14b", [problem], [plan], epochs=3), 8)


@pytest.mark.slow
def test_eight_ranks_follow_a_plan_of_any_degrees_in_its_time(report):
    for iteration in report.iterations[1:]:
        assert iteration.planned_us == 6 * TASK_US
        # Sleeps cannot end early; on a busy machine they end late.
        assert iteration.planned_us <= iteration.measured_us < 1.5 * iteration.planned_us
        assert [len(task.ranks) for task in iteration.tasks] == [3, 5, 6, 2, 8]
        assert min(task_overheads(iteration)) > -TASK_US // 10
        # 256 values of 4 bytes: a's encoders 0 to 2 leave 3, 4 and 5 without, b's leave nobody.
        sent = {
            task.micro_batch: task.handoff_bytes for task in iteration.tasks if task.handoff_bytes
        }
        assert sent == {"a": 4 * (43 + 42 + 42)}


@pytest.mark.slow
def test_report_and_records_are_labelled_and_nothing_is_learnt_from_sleep(report):
    assert report.emulated
    assert report.model == "emulated wan2.1-14b"
    value = report_to_json(report)
    assert value["emulated"] is True
    assert report_from_json(json.loads(json.dumps(value))) == report
    assert {run.status for run in run_records(report, ["p"])} == {"emulated"}
    assert measurements(report) == ()


@pytest.mark.slow
def test_a_killed_rank_of_a_rehearsal_is_named_and_ends_it(tmp_path):
    def kill_rank_1(progress):
        if progress.done == 1:
            os.kill(forked_ranks_of(tmp_path)[1], signal.SIGKILL)

    job = replace(rehearsal(speed=10.0, epochs=200), timeout_floor_s=20.0)
    begin = time.monotonic()
    with pytest.raises(RunError, match=r"rank 1: the process ended with code -9|Connection closed"):
        run_local(job, 4, on_progress=kill_rank_1, folder=tmp_path)
    assert time.monotonic() - begin < 60
