"""A job that cannot run is refused with a message that helps, before any process starts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import arachne_opt
from arachne_opt.cascade.plan import CascadePlan
from arachne_opt.errors import InputError
from arachne_opt.executor.job import check_world_size
from arachne_opt.executor.job_json import job_from_json, job_to_json
from arachne_opt.executor.launch import run_local
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.workload import Iteration, Shape
from tests.executor.jobs import ODD, SMALL, batch, iteration_of, job_of, mixed_iterations

RUNS = ((0, 0, (0,), 0), (0, 1, (0, 1), 1))


def single(runs=RUNS, micro_batch=None, devices=4):
    return iteration_of("it", (micro_batch or batch("a", ODD),), runs, devices)


def test_a_job_survives_json():
    job = job_of(preset="tiny-wan", weight_rule="token", epochs=2, learning_rate=0.5)
    assert job_from_json(job_to_json(job)) == job


def test_steps_go_through_the_iterations_epoch_by_epoch():
    job = job_of(epochs=2)
    assert [job.iteration_of(step).name for step in range(job.steps)] == ["mixed", "other"] * 2


def test_a_plan_for_another_world_size_is_refused_before_any_process_starts():
    job = job_of(single(devices=8))
    with pytest.raises(InputError, match="the plan is for 8 devices, this run has 4 ranks; try 8"):
        run_local(job, 4)
    check_world_size(job, 8)


def test_a_degree_that_does_not_divide_the_heads_names_the_legal_ones():
    bad = single(((0, 0, (0,), 0), (0, 1, (0, 1, 2), 1)))
    with pytest.raises(InputError, match="degree 3 does not divide the 4 heads of toy") as caught:
        job_of(bad)
    assert caught.value.hint == "degrees 1, 2, 4"
    assert caught.value.where == "iteration it, denoise of a"


def test_a_degree_wider_than_the_tokens_is_refused():
    one_token = batch("a", Shape(frames=1, height=16, width=16))
    with pytest.raises(InputError, match="degree 2 is wider than the 1 tokens"):
        job_of(single(micro_batch=one_token))


def test_a_shape_that_the_model_cannot_take_offers_the_nearest():
    odd = batch("a", Shape(frames=8, height=50, width=80))
    with pytest.raises(InputError, match=r"4n\+1 frames .* try 5x48x80"):
        job_of(single(micro_batch=odd))


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (RUNS[:1], "the plan lacks denoise of a"),
        ((*RUNS, RUNS[0]), "has encode of a twice"),
        (((0, 0, (0,), 1), (0, 1, (0,), 0)), "denoise of a starts before its predecessor"),
        (((0, 0, (0, 0), 0), RUNS[1]), "no proper group"),
        (((0, 0, (4,), 0), RUNS[1]), r"runs on devices \(4,\), the cluster has 4"),
        (((1, 0, (0,), 0), *RUNS), "a task .* that no cascade has"),
    ],
)
def test_a_plan_that_does_not_fit_its_cascades_is_refused(runs, message):
    with pytest.raises(InputError, match=message):
        single(runs)


def test_cascades_and_micro_batches_must_be_the_same():
    iteration = single()
    others = Iteration(name="it", micro_batches=(batch("b", ODD),))
    with pytest.raises(InputError, match="micro-batch a, which the iteration does not have"):
        replace(iteration, batches=others)
    more = Iteration(name="it", micro_batches=(batch("a", ODD), batch("b", SMALL)))
    with pytest.raises(InputError, match="micro-batch b has no cascade"):
        replace(iteration, batches=more)


def test_tasks_other_than_encode_and_denoise_are_refused():
    iteration = single()
    cascade = iteration.problem.cascades[0]
    alone = replace(cascade, tasks=cascade.tasks[:1])
    problem = replace(iteration.problem, cascades=(alone,))
    plan = CascadePlan(problem_name="hand", placements=iteration.plan.placements[:1])
    with pytest.raises(InputError, match="the runtime replays encode followed by denoise"):
        replace(iteration, problem=problem, plan=plan)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"weight_rule": "frame"}, "unknown weight rule 'frame'; try one of clip, token"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"epochs": 0}, "epochs must be positive"),
        ({"timeout_factor": 0.0}, "must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(InputError, match=message):
        job_of(**fields)


def test_plans_for_different_clusters_do_not_mix():
    with pytest.raises(InputError, match=r"the plans are for \[4, 8\] devices"):
        job_of(single(), single(devices=8))


def test_a_job_file_with_a_typing_error_is_refused():
    value = job_to_json(job_of())
    with pytest.raises(InputError, match="did you mean 'epochs'"):
        job_from_json({**value, "epoch": 3})
    with pytest.raises(InputError, match=r"not 'arachne\.replay-job/1'"):
        job_from_json({**value, "format": "arachne.replay-job/9"})


def test_time_outs_follow_the_planned_duration():
    first, _ = mixed_iterations()
    job = job_of(first, timeout_factor=50.0, timeout_floor_s=2.0)
    assert job.timeout_s(first.plan.placements[0]) == pytest.approx(5.0)
    assert replace(job, timeout_floor_s=9.0).timeout_s(first.plan.placements[0]) == 9.0


def test_an_unknown_model_or_size_is_refused():
    with pytest.raises(InputError, match="did you mean 'tiny-wan'"):
        ModelChoice(preset="tiny-wam")
    with pytest.raises(InputError, match="cannot run models of the family 'mochi'"):
        replace(ModelChoice(preset="toy").config(), family="mochi")
    with pytest.raises(InputError, match="3 text tokens cannot be shared by up to 4 ranks"):
        ModelChoice(preset="tiny-cogvideox", overrides={"text_length": 3})
    with pytest.raises(InputError, match="did you mean 'layers'"):
        ModelChoice(preset="toy", overrides={"layer": 3})


def test_describing_and_launching_jobs_loads_no_torch():
    modules = ("job_json", "launch", "measure", "report", "pixel_files")
    imports = "; ".join(f"import arachne_opt.executor.{name}" for name in modules)
    code = f"{imports}; import sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    root = Path(arachne_opt.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
