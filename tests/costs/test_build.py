"""From iterations to problems."""

from dataclasses import dataclass, replace

import pytest

from arachne_opt.cascade.problem import Option
from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.costs.analytic import AnalyticCostModel, analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.errors import InfeasibleError, InputError
from arachne_opt.models import model_spec
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape
from arachne_opt.workload_generator import generate_workload

GIB = 2**30
SHAPE = Shape(frames=17, height=64, width=96)


@dataclass(frozen=True)
class FixedCosts:
    """Options given by hand: degree to GiB."""

    memory_gib: dict[int, float]
    tasks: tuple[str, ...] = ("encode", "denoise")
    version: str = "fixed"

    @property
    def task_names(self):
        return self.tasks

    def options(self, task, batch, device_type):
        return tuple(
            Option(degree=k, duration_us=1000 // k, memory_bytes=int(g * GIB))
            for k, g in self.memory_gib.items()
        )

    def why_illegal(self, task, degree):
        return f"degree {degree} is odd; legal: 1, 2, 4" if degree in (3, 5) else None

    def input_bytes(self, task, batch):
        return 77 if task == "denoise" else 0

    def tail_us(self, cluster):
        return 0

    def resident_bytes(self, device_type):
        return 0


def iteration(*sizes: int) -> Iteration:
    batches = [
        MicroBatch(
            id=f"mb{i}",
            shape=SHAPE,
            clips=tuple(Clip(id=f"clip{i}{j}", shape=SHAPE) for j in range(size)),
        )
        for i, size in enumerate(sizes)
    ]
    return Iteration(name="it0", micro_batches=tuple(batches))


def test_each_micro_batch_becomes_a_chain_of_tasks() -> None:
    problem = build_problem(iteration(1, 3), parse_shorthand("T4:2"), FixedCosts({1: 1, 2: 1}))
    assert problem.name == "it0"
    assert problem.cost_version == "fixed"
    assert [c.id for c in problem.cascades] == ["mb0", "mb1"]
    assert problem.cascades[1].label == "3x17x64x96"
    encode, denoise = problem.cascades[0].tasks
    assert (encode.predecessors, denoise.predecessors) == ((), (0,))
    assert (encode.input_bytes, denoise.input_bytes) == (0, 77)


def test_clips_with_cached_latents_have_nothing_to_encode() -> None:
    mixed = iteration(1, 2)
    cached = tuple(replace(c, latents="z.safetensors") for c in mixed.micro_batches[1].clips)
    batches = (mixed.micro_batches[0], replace(mixed.micro_batches[1], clips=cached))
    found = replace(mixed, micro_batches=batches)
    problem = build_problem(found, parse_shorthand("T4:2"), FixedCosts({1: 1, 2: 1}))
    assert [[t.name for t in c.tasks] for c in problem.cascades] == [
        ["encode", "denoise"],
        ["denoise"],
    ]
    (denoise,) = problem.cascades[1].tasks
    assert (denoise.predecessors, denoise.input_bytes) == ((), 0)


def test_one_device_type_goes_without_saying_and_several_are_named() -> None:
    costs = FixedCosts({1: 1, 2: 1})
    one = build_problem(iteration(1), parse_shorthand("T4:2"), costs)
    assert {o.device_type for o in one.cascades[0].tasks[0].options} == {None}
    two = build_problem(iteration(1), parse_shorthand("T4:2,L4:1"), costs)
    found = [(o.degree, o.device_type) for o in two.cascades[0].tasks[0].options]
    assert found == [(1, "T4"), (2, "T4"), (1, "L4")]


def test_options_that_do_not_fit_are_dropped_and_logged(caplog) -> None:
    with caplog.at_level("INFO"):
        problem = build_problem(
            iteration(1), parse_shorthand("T4:2"), FixedCosts({1: 17, 2: 16, 4: 1})
        )
    assert [o.degree for o in problem.cascades[0].tasks[0].options] == [2]
    assert "at degree 1 on T4: needs 17.0 GiB per device, there are 16.0 GiB" in caplog.text
    assert "at degree 4 on T4: wider than the 2 devices" in caplog.text


def test_a_micro_batch_that_fits_nowhere_names_clip_and_memory() -> None:
    costs = FixedCosts({1: 99, 2: 40.5, 4: 1})
    with pytest.raises(InfeasibleError) as caught:
        build_problem(iteration(1, 3), parse_shorthand("T4:2"), costs)
    shown = str(caught.value)
    assert caught.value.exit_code == 3
    assert "micro-batch mb0 (1x17x64x96, clip clip00)" in shown
    assert "at degree 2 it needs 40.5 GiB per device, T4 has 16.0 GiB" in shown


def test_the_nearest_miss_over_all_types_is_named() -> None:
    with pytest.raises(InfeasibleError, match=r"needs 30.0 GiB per device, L4 has 24.0 GiB"):
        build_problem(iteration(2), parse_shorthand("T4:2,L4:1"), FixedCosts({1: 30}))


def test_degrees_wider_than_the_cluster_are_infeasible() -> None:
    with pytest.raises(InfeasibleError, match=r"needs at least 4 devices of one type.*has 2"):
        build_problem(iteration(1), parse_shorthand("T4:2"), FixedCosts({4: 1, 8: 1}))


def test_asked_degrees_are_kept_and_illegal_ones_explained() -> None:
    costs = FixedCosts({1: 1, 2: 1, 4: 1})
    cluster = parse_shorthand("T4:4")
    problem = build_problem(iteration(1), cluster, costs, degrees=[1, 4])
    assert [o.degree for o in problem.cascades[0].tasks[1].options] == [1, 4]
    with pytest.raises(InputError, match="degree 3 is odd; legal: 1, 2, 4"):
        build_problem(iteration(1), cluster, costs, degrees=[1, 3])
    with pytest.raises(InputError, match="at none of the degrees 8"):
        build_problem(iteration(1), cluster, costs, degrees=[8])
    with pytest.raises(InputError, match="no degree is allowed"):
        build_problem(iteration(1), cluster, costs, degrees=[])
    with pytest.raises(InputError, match="at least 1, not 0"):
        build_problem(iteration(1), cluster, costs, degrees=[0])


def test_a_degree_that_does_not_divide_the_heads_names_the_legal_ones() -> None:
    costs = AnalyticCostModel(model_spec("wan2.1-14b"))
    with pytest.raises(InputError) as caught:
        build_problem(iteration(1), parse_shorthand("H100-80:8"), costs, degrees=[3])
    expected = "degree 3 does not divide the 40 heads of wan2.1-14b; legal: 1, 2, 4, 5, 8"
    assert expected in str(caught.value)


def test_a_generated_iteration_on_mixed_types_has_options_for_both() -> None:
    cluster = parse_shorthand("H100-80:8x2,A100-80:8x2")
    work = generate_workload("mixed", iterations=1, cascades=8, seed=1)
    costs = analytic_for_cluster(model_spec("hunyuanvideo-13b"), cluster)
    problem = build_problem(work.iterations[0], cluster, costs)
    for _, _, task in problem.tasks():
        assert {o.device_type for o in task.options} == {"H100-80", "A100-80"}
        assert problem.usable_options(task) == task.options


def test_latents_price_the_hand_off() -> None:
    costs = AnalyticCostModel(model_spec("tiny-wan"))
    problem = build_problem(iteration(2), parse_shorthand("CPU:4"), costs)
    assert problem.cascades[0].tasks[1].input_bytes == 2 * (5 * 8 * 12 * 4 * 2)
