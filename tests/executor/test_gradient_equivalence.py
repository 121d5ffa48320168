"""The gradient of a replay is that of one process, whatever the plan: on 4 real processes."""

import pytest
import torch

from arachne_opt.executor.report import measurements, report_from_json, report_to_json
from tests.executor import rank_tasks, reference
from tests.executor.jobs import job_of, mixed_iterations, random_iteration
from tests.executor.ranks import run_ranks

PRESETS = ("toy", "tiny-wan")
RULES = ("clip", "token")


@pytest.fixture(scope="module")
def jobs():
    """Three steps of each model under each rule: mixed plan, other plan, mixed plan."""
    iterations = mixed_iterations()
    return {
        (preset, rule): job_of(
            *iterations, iterations[0], preset=preset, weight_rule=rule, learning_rate=1e-3
        )
        for preset in PRESETS
        for rule in RULES
    }


@pytest.fixture(scope="module")
def replays(jobs):
    """Per job what each rank gives, all from one launch."""
    answers = run_ranks(rank_tasks.train, 4, list(jobs.values()))
    return {key: [answer[i] for answer in answers] for i, key in enumerate(jobs)}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("preset", PRESETS)
def test_loss_gradients_and_parameters_equal_those_of_one_process(jobs, replays, preset, rule):
    losses, gradients, parameters, _, _ = replays[preset, rule][0]
    with torch.random.fork_rng():
        wanted_losses, wanted_gradients, wanted_parameters = reference.train(jobs[preset, rule])

    assert losses == pytest.approx(wanted_losses, rel=1e-6)
    for found, wanted in zip(gradients, wanted_gradients, strict=True):
        assert reference.worst_difference(tensors(found), wanted) < 1e-5
    assert reference.worst_difference(tensors(parameters), wanted_parameters) < 1e-5


def test_the_rules_weigh_clips_differently(replays):
    assert replays["toy", "clip"][0][0] != pytest.approx(replays["toy", "token"][0][0], rel=1e-4)


def test_all_ranks_hold_the_same_parameters_to_the_bit(replays):
    for ranks in replays.values():
        first, *others = (tensors(rank[2]) for rank in ranks)
        for other in others:
            assert all(torch.equal(first[name], other[name]) for name in first)


def test_handoff_moves_exactly_the_windows_that_are_not_there_yet(jobs, replays):
    config = jobs["toy", "clip"].model.config()
    value_bytes = 4 * config.token_features
    moved = {
        t.micro_batch: t.handoff_bytes
        for t in replays["toy", "clip"][0][3].iterations[0].tasks
        if t.task == "denoise"
    }
    # a: encoded on 0, denoised on 0 and 1: rank 1 lacks 22 of 45 tokens of 2 clips.
    # b: encoded on 1, 2 and 3, denoised on 2. c: on 0 and 1, then on all: 2 and 3 lack 11 each.
    # d: encoded on 2 and 3, denoised on 1 and 3: rank 1 lacks 3 of 6 tokens of 3 clips.
    tokens = {"a": 2 * 22, "b": 0, "c": 22, "d": 3 * 3}
    assert moved == {name: count * value_bytes for name, count in tokens.items()}


def test_the_report_tells_planned_and_measured_times_of_every_task(jobs, replays):
    job, report = jobs["tiny-wan", "clip"], replays["tiny-wan", "clip"][0][3]
    assert report_from_json(report_to_json(report)) == report
    assert [it.step for it in report.iterations] == [0, 1, 2]
    first = report.iterations[0]
    placements = job.iterations[0].plan.placements
    assert [(t.planned_start_us, t.devices) for t in first.tasks] == [
        (p.start_us, tuple(sorted(p.devices))) for p in placements
    ]
    spans = {(t.micro_batch, t.task, span.rank): span for t in first.tasks for span in t.ranks}
    assert all(span.start_us < span.end_us for span in spans.values())
    for (name, task, rank), span in spans.items():
        if task == "denoise" and (name, "encode", rank) in spans:
            assert spans[name, "encode", rank].end_us <= span.start_us
    assert max(task.end_us for task in first.tasks) <= first.measured_us
    samples = measurements(report, skip_steps=1)
    assert len(samples) == sum(len(it.tasks) for it in report.iterations[1:])
    assert {sample.degree for sample in samples if sample.task == "denoise"} == {1, 2, 4}


def test_groups_are_made_once_and_used_again(replays):
    # (0,1) (1,2,3) (2,3) (1,3) (0,2): the world is there already.
    assert all(rank[4] == 5 for ranks in replays.values() for rank in ranks)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 200), marks=pytest.mark.slow)])
def test_random_plans_neither_hang_nor_change_the_gradient(seeds):
    iterations = [random_iteration(seed) for seed in seeds]
    job = job_of(*iterations, learning_rate=0.0, weight_decay=0.0)
    losses, gradients, _, _, _ = run_ranks(rank_tasks.train, 4, [job])[0][0]
    wanted_losses, wanted_gradients, _ = reference.train(job)
    assert losses == pytest.approx(wanted_losses, rel=1e-6)
    for found, wanted in zip(gradients, wanted_gradients, strict=True):
        assert reference.worst_difference(tensors(found), wanted) < 1e-5


def tensors(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
