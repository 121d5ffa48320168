"""A rehearsal keeps to the simulated time and order, and notes how every rank's time passes."""

from dataclasses import replace

import pytest

from arachne_opt.executor.pipeline.job import PipelineJob
from arachne_opt.executor.pipeline.launch import run_local
from arachne_opt.executor.pipeline.report import (
    RankSpan,
    StageReport,
    report_from_json,
    report_to_json,
    run_records,
    stage_reports,
)
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan
from arachne_opt.pipeline.tables import PriceTables
from arachne_opt.report.pipeline_measured import Measured, measured_timeline, scaled
from arachne_opt.report.pipeline_timeline import planned_timeline
from tests.executor.pipeline.jobs import ROWS, mixed_plan, tiny_problem
from tests.pipeline_builders import stage

MIXED = ("A100-40=4,V100-16=4", "V100-16", "A100-40")


def slower_v100s():
    """A V100 takes three times as long as an A100."""
    problem = tiny_problem(MIXED[0], per_node=4)
    steps = tuple(
        step
        if step.device_type == "A100-40"
        else replace(
            step,
            forward_s=tuple(3 * x for x in step.forward_s),
            backward_s=tuple(3 * x for x in step.backward_s),
        )
        for step in problem.tables.steps
    )
    tables = PriceTables(
        steps=steps, routes=problem.tables.routes, node_links=problem.tables.node_links
    )
    return replace(problem, tables=tables)


def two_stages(problem, cut, *, first="V100-16", second="A100-40", replicas=2):
    stages = (stage(0, cut, *[first] * replicas), stage(cut, ROWS, *[second] * replicas))
    pipeline = Pipeline(microbatch=1, microbatches=4, stages=stages)
    plan = PipelinePlan(model=problem.model.name, global_batch=8, pipelines=(pipeline,))
    return place(problem, plan)


def rehearsed(problem, plan, speed):
    return run_local(PipelineJob(problem=problem, plan=plan, steps=2, speed=speed))


@pytest.mark.slow
def test_plans_end_in_the_predicted_order_and_near_the_predicted_times():
    problem = slower_v100s()
    plans = {
        "uneven": two_stages(problem, 1),
        "even": two_stages(problem, 3),
        "one type": two_stages(problem, 3, first="A100-40", replicas=1),
    }
    planned, measured = {}, {}
    for name, plan in plans.items():
        report = rehearsed(problem, plan, 1.5)
        planned[name] = report.steps[1].planned_us
        measured[name] = report.steps[1].measured_us
        # Sleeps cannot end early; on a busy machine they end late.
        assert 0.999 * planned[name] <= measured[name] < 1.3 * planned[name], name
    assert sorted(planned, key=planned.get) == sorted(measured, key=measured.get)


@pytest.mark.slow
def test_groups_unequal_replicas_and_expert_groups_are_rehearsed_and_each_phase_is_noted():
    problem = tiny_problem(*MIXED[:1], per_node=2)
    job = PipelineJob(problem=problem, plan=mixed_plan(problem, *MIXED[1:]), steps=2, speed=0.5)
    report = run_local(job)
    assert report.emulated
    assert report.model == "emulated tiny-llama"
    assert report_from_json(report_to_json(report)) == report
    assert run_records(report) == ()
    stages = report.steps[1].stages
    assert [(s.pipeline, s.stage) for s in stages] == [(0, 0), (0, 1)]
    # 4 micro-batches of 2 samples on two devices and of 1 on one: rows x (1 + 2) x 10 ms, half as
    # fast as planned.
    assert [s.compute_us for s in stages] == pytest.approx(
        [4 * 60_000 * 2, 4 * 120_000 * 2], rel=0.2
    )
    assert all(s.send_us > 0 and s.sync_us > 0 and s.update_us > 0 for s in stages)
    computes = [s for s in report.spans if s.phase == "compute"]
    assert len(computes) == 4 * 2 * 4
    assert {s.microbatch for s in computes} == set(range(4))
    check_timelines(job, report)


def check_timelines(job, report):
    members = job.layout.members
    spans = [
        Measured(
            place=(m.pipeline, m.stage, m.replica, m.tp_index),
            phase=span.phase,
            forward=span.forward,
            microbatch=span.microbatch,
            start_us=span.start_us,
            end_us=span.end_us,
        )
        for span in report.spans
        for m in (members[span.rank],)
    ]
    measured = measured_timeline(job.problem, job.plan, spans)
    planned = scaled(planned_timeline(job.problem, job.plan), 1 / job.speed)
    assert {t.device for t in measured.tracks} == {t.device for t in planned.tracks}
    assert measured.processes == planned.processes

    def order(timeline):
        tracks = timeline.tracks
        found = [
            (tracks[s.track].device, s.start_us, s.name)
            for s in timeline.compute_spans()
            if s.category in ("forward", "backward")
        ]
        return [(device, name) for device, _, name in sorted(found)]

    assert order(measured) == order(planned)


def test_stage_reports_are_means_over_the_ranks_of_a_stage():
    places = [(0, 0), (0, 1), (0, 0)]
    sums = [[2.0, 0, 4, 0, 1], [10.0, 1, 2, 3, 4], [4.0, 2, 0, 0, 1]]
    first, second = stage_reports(places, sums)
    assert (first.compute_us, first.send_us, first.wait_us) == (3, 1, 2)
    assert second == StageReport(
        pipeline=0, stage=1, compute_us=10, send_us=1, wait_us=2, sync_us=3, update_us=4
    )


def test_a_span_without_an_operation_keeps_its_place():
    span = RankSpan(rank=3, phase="sync", forward=False, microbatch=-1, start_us=1, end_us=2)
    problem = tiny_problem(*MIXED[:1], per_node=2)
    plan = mixed_plan(problem, *MIXED[1:])
    line = measured_timeline(
        problem,
        plan,
        [
            Measured(
                place=(0, 1, 1, 0),
                phase=span.phase,
                forward=span.forward,
                microbatch=span.microbatch,
                start_us=span.start_us,
                end_us=span.end_us,
            )
        ],
    )
    (drawn,) = line.spans
    assert drawn.name == "sums of gradients"
    assert "microbatch" not in drawn.args
    assert line.tracks[drawn.track].stream == "gradients"
