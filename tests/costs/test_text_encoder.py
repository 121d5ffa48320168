"""Cascades of three tasks from the analytic model."""

from dataclasses import replace

import pytest

from arachne_opt.cascade.verify import verify
from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.costs.analytic import AnalyticCostModel, analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.device_types import device_type
from arachne_opt.errors import InputError
from arachne_opt.models import model_spec
from arachne_opt.solvers.base import Limits
from arachne_opt.solvers.registry import cascade_solver
from arachne_opt.text_encoders import text_encoder_of
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

WAN = model_spec("wan2.1-1.3b")
CLUSTER = parse_shorthand("H100-80:4")
COSTS = analytic_for_cluster(WAN, CLUSTER, text_encoder=True)
SHAPE = Shape(frames=17, height=480, width=832)


def batch(size: int, *, latents: str = "") -> MicroBatch:
    clips = [Clip(id=f"clip{i}", shape=SHAPE, latents=latents) for i in range(size)]
    return MicroBatch(id="mb", shape=SHAPE, clips=tuple(clips))


def problem_of(*batches: MicroBatch):
    return build_problem(Iteration(name="it", micro_batches=batches), CLUSTER, COSTS)


def test_text_and_clips_are_encoded_side_by_side_and_denoise_waits_for_both() -> None:
    problem = problem_of(batch(2))
    assert [(t.name, t.predecessors) for t in problem.cascades[0].tasks] == [
        ("text", ()),
        ("encode", ()),
        ("denoise", (0, 1)),
    ]
    result = cascade_solver().solve(problem, Limits(time_limit_s=0.5))
    verify(problem, result.plan, result.objective_us)


def test_cached_latents_leave_denoise_alone() -> None:
    (task,) = problem_of(batch(2, latents="clip.pt")).cascades[0].tasks
    assert (task.name, task.predecessors, task.input_bytes) == ("denoise", (), 0)


def test_the_larger_of_latents_and_embeddings_is_handed_over() -> None:
    """512 tokens of 4096 halves are 4 MiB; latents of one small frame are less."""
    small = Shape(frames=1, height=64, width=64)
    one = MicroBatch(id="mb", shape=small, clips=(Clip(id="c", shape=small),))
    assert COSTS.input_bytes("denoise", one) == 512 * 4096 * 2
    assert COSTS.input_bytes("encode", one) == COSTS.input_bytes("text", one) == 0


def test_texts_are_shared_over_the_group() -> None:
    """Four texts on one device take longer than one; on four devices no longer than one on one."""
    kind = device_type("H100-80")
    four = {o.degree: o.duration_us for o in COSTS.options("text", batch(4), kind)}
    one = {o.degree: o.duration_us for o in COSTS.options("text", batch(1), kind)}
    assert four[1] > four[2] > four[4] == one[1] == one[4]


def test_one_text_takes_two_operations_per_parameter_and_token() -> None:
    """512 of 1512 tokens' worth of the efficiency, and 2 ms."""
    kind = device_type("H100-80")
    option = COSTS.options("text", batch(1), kind)[0]
    rate = kind.peak_flops_per_s * COSTS.denoise_efficiency
    rate *= 512 / (512 + 1000 * kind.peak_flops_per_s / 989.4e12)
    seconds = 2 * 4_630_761_472 * 512 / rate + 0.002
    assert option.duration_us == pytest.approx(seconds * 1e6, abs=2)
    assert option.memory_bytes > COSTS.resident_bytes(kind) + 2 * 5_680_910_336


def test_without_a_text_encoder_the_version_is_that_of_old() -> None:
    plain = analytic_for_cluster(WAN, CLUSTER)
    assert plain.task_names == ("encode", "denoise")
    assert plain.version != COSTS.version
    assert replace(COSTS, text_encoder=None).version == plain.version
    with pytest.raises(InputError, match="not 'text'"):
        plain.options("text", batch(1), device_type("H100-80"))


def test_a_model_without_a_known_text_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="no text encoder is known for toy"):
        text_encoder_of(model_spec("toy"))
    assert AnalyticCostModel(model_spec("toy")).text_encoder is None
