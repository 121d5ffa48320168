"""A training that runs goes on under plans that are handed to it, without a restart."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from arachne_opt.errors import InputError
from arachne_opt.executor.pipeline.job import TokenSource
from arachne_opt.executor.pipeline.next_plan import (
    NEXT_PLAN_FILE,
    NextPlan,
    hand_over,
    nodes_of_processes,
)
from arachne_opt.executor.pipeline.report import report_from_json, report_to_json, run_records
from arachne_opt.executor.pipeline.samples import open_samples
from arachne_opt.executor.pipeline.trainer import PipelineTrainer
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan
from tests.executor.pipeline.jobs import ROWS, SPEC, tiny_job, tiny_problem, uniform_plan
from tests.executor.pipeline.models import train_whole
from tests.executor.ranks import run_ranks
from tests.pipeline_builders import stage

RATE = 0.002


def small_plan(problem):
    """Two stages of one device each."""
    stages = (stage(0, 4, "CPU"), stage(4, ROWS, "CPU"))
    pipeline = Pipeline(microbatch=2, microbatches=4, stages=stages)
    plan = PipelinePlan(model=problem.model.name, global_batch=8, pipelines=(pipeline,))
    return place(problem, plan)


def test_nodes_keep_their_processes_when_others_leave(tmp_path):
    job = tiny_job(moves=str(tmp_path))
    less = tiny_problem("CPU=2")
    newer = replace(job, problem=less, plan=small_plan(less))
    assert nodes_of_processes(job, job) == (("CPU", 0), ("CPU", 0), ("CPU", 1), ("CPU", 1))
    gone = ("CPU, left", 1)
    assert nodes_of_processes(job, newer) == (("CPU", 0), ("CPU", 0), gone, gone)


def test_a_plan_is_taken_up_once_and_one_that_fits_no_process_is_refused(tmp_path):
    job = tiny_job(moves=str(tmp_path))
    looks = NextPlan(job)
    assert looks.newer(job) is None
    less, more = tiny_problem("CPU=2"), tiny_problem("CPU=8")
    hand_over(tmp_path, less, small_plan(less), "abc")
    found = looks.newer(job)
    assert found is not None
    assert (found.plan_id, found.world_size, found.steps) == ("abc", 2, job.steps)
    assert looks.newer(found) is None
    hand_over(tmp_path, job.problem, job.plan, "def")
    assert looks.newer(job) is None
    wide = replace(
        uniform_plan(more),
        pipelines=tuple(
            replace(p, stages=tuple(replace(s, replicas=s.replicas * 2) for s in p.stages))
            for p in uniform_plan(more).pipelines
        ),
    )
    hand_over(tmp_path, more, wide, "ghi")
    with pytest.raises(InputError, match=r"the plan wants . devices of .* the run has"):
        looks.newer(job)
    for at, broken in enumerate((b"{", b"\xff\xfe{}", b"[" * 3)):
        (tmp_path / NEXT_PLAN_FILE).write_bytes(broken)
        os.utime(tmp_path / NEXT_PLAN_FILE, ns=(at, at))
        with pytest.raises(InputError, match="not JSON"):
            looks.newer(job)


def test_a_rehearsal_does_not_move(tmp_path):
    with pytest.raises(InputError, match="a rehearsal has nothing that could move"):
        replace(tiny_job(), spec=None, source=None, moves=str(tmp_path))


def train_and_follow(rank, job):
    """The report of a training whose rank 0 hands over plans after its second and fifth steps."""
    folder, less = Path(job.moves), tiny_problem("CPU=2")

    def follow(step):
        if rank == 0 and step.step == 1:
            hand_over(folder, less, small_plan(less), "second")
        if rank == 0 and step.step == 4:
            hand_over(folder, job.problem, uniform_plan(job.problem), "third")

    return PipelineTrainer(job, torch.device("cpu")).run(follow)


@pytest.mark.slow
def test_processes_leave_and_come_back_while_the_loss_stays_that_of_one(tmp_path):
    """Four ranks, then two, then four of another plan."""
    job = tiny_job(moves=str(tmp_path), steps=8, learning_rate=RATE, plan_id="first")
    report, *nothing = run_ranks(train_and_follow, 4, job)
    assert nothing == [None] * 3
    found = [(m.step, m.plan_id, m.world_size) for m in report.moves]
    assert found == [(2, "second", 2), (5, "third", 4)]
    assert all(m.network_bytes > 0 for m in report.moves)
    assert report_from_json(report_to_json(report)) == report
    ran = [(record.plan_id, record.world_size) for record in run_records(report)]
    assert ran == [("first", 4)] * 2 + [("second", 2)] * 3 + [("third", 4)] * 3
    assert {span.rank for span in report.spans} == set(range(4))
    samples = open_samples(TokenSource(length=16), SPEC.vocabulary, job.seed)
    batches = [samples(range(8 * step, 8 * step + 8)) for step in range(job.steps)]
    expected = train_whole(SPEC, batches, learning_rate=RATE).losses
    assert [step.loss for step in report.steps] == pytest.approx(expected, rel=1e-6)
