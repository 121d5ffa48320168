"""Reports become records: durations freed of waiting and of the topology's penalty."""

import pytest

from arachne_opt.errors import InputError
from arachne_opt.executor.report import (
    IterationReport,
    RankSpan,
    ReplayReport,
    TaskReport,
    measurements,
    report_from_json,
    report_to_json,
    run_records,
)
from tests.executor.jobs import ODD

TASK = TaskReport(
    micro_batch="a",
    task="denoise",
    shape=ODD,
    clips=2,
    text_tokens=7,
    device_type="CPU",
    penalty_ppm=1_250_000,
    planned_start_us=0,
    planned_end_us=400,
    ranks=(RankSpan(rank=0, start_us=10, end_us=600), RankSpan(rank=3, start_us=100, end_us=590)),
    handoff_bytes=64,
)


def report(*steps):
    iterations = tuple(
        IterationReport(
            name="it",
            step=step,
            loss=1.5,
            planned_us=400,
            measured_us=600,
            sync_us=5,
            optimizer_us=6,
            overhead_us=7,
            tasks=(TASK, TASK),
        )
        for step in steps
    )
    return ReplayReport(
        model="toy",
        world_size=4,
        device="cpu",
        threads_per_rank=1,
        weight_rule="clip",
        iterations=iterations,
    )


def test_a_report_survives_json_and_sums_what_was_handed_off():
    value = report_to_json(report(0, 1))
    assert report_from_json(value) == report(0, 1)
    assert value["iterations"][0]["handoff_bytes"] == 128
    assert value["iterations"][0]["tasks"][0]["start_us"] == 100


def test_a_duration_counts_from_the_last_rank_to_arrive_and_without_penalty():
    assert TASK.duration_us == 500
    assert [m.duration_us for m in measurements(report(0))] == [400, 400]
    assert measurements(report(0))[0].degree == 2


def test_warm_up_steps_are_left_out_of_the_measurements():
    assert len(measurements(report(0, 1, 2), skip_steps=2)) == 2


def test_each_step_becomes_a_run_of_its_iterations_plan():
    runs = run_records(report(0, 1, 2), ["p0", "p1"])
    assert [run.plan_id for run in runs] == ["p0", "p1", "p0"]
    assert runs[0].fidelity == pytest.approx(1.5)
    assert [len(run.report["iterations"]) for run in runs] == [1, 1, 1]


@pytest.mark.parametrize("value", [{}, {"format": "arachne.replay-report/1"}, 3])
def test_what_is_no_report_is_refused(value):
    with pytest.raises(InputError):
        report_from_json(value)
