"""Candidate micro-batches and their prices."""

import pytest

from arachne_opt.cluster_file import read_cluster
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.batching import build_batching_problem
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.table import CostRow, TableCostModel
from arachne_opt.errors import InfeasibleError, InputError
from arachne_opt.models import model_spec
from arachne_opt.units import parse_bytes
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape
from arachne_opt.workload_generator import generate_workload

CLUSTER = read_cluster("H100-80:8x2")
MODEL = model_spec("hunyuanvideo-13b")
COSTS = analytic_for_cluster(MODEL, CLUSTER)
SHAPE = Shape(frames=21, height=720, width=1280)


def iteration(*texts: int, shape: Shape = SHAPE) -> Iteration:
    """One micro-batch of clips with these text lengths."""
    clips = tuple(Clip(id=f"c{i}", shape=shape, text_tokens=t) for i, t in enumerate(texts))
    batch = MicroBatch(id="all", shape=shape, clips=clips)
    return Iteration(name="it", micro_batches=(batch,))


@pytest.mark.parametrize("preset", ["mixed", "720p"])
def test_candidates_cost_what_the_same_micro_batches_cost(preset: str) -> None:
    (given,) = generate_workload(preset, iterations=1, cascades=8, seed=3).iterations
    problem = build_batching_problem(given, CLUSTER, COSTS)
    for batching in (
        problem.batching_of(given),
        tuple((1,) * len(f.clips) for f in problem.families),
    ):
        chosen = problem.iteration(batching)
        direct = build_problem(chosen, CLUSTER, COSTS)
        assert problem.placement_problem(batching).cascades == direct.cascades
        assert problem.cost_version == direct.cost_version


def test_clips_of_like_text_stand_together() -> None:
    problem = build_batching_problem(iteration(5, 200, 17, 90), CLUSTER, COSTS)
    assert [clip.text_tokens for clip in problem.families[0].clips] == [200, 90, 17, 5]


def test_what_does_not_fit_the_devices_is_no_candidate() -> None:
    problem = build_batching_problem(iteration(*[9] * 12), CLUSTER, COSTS, degrees=[1, 2])
    (family,) = problem.families
    sizes = [size for size in range(1, 13) if family.kind(0, size) is not None]
    assert sizes == list(range(1, max(sizes) + 1))
    assert max(sizes) < 12
    for cascade in problem.catalogue:
        for task in cascade.tasks:
            assert all(o.memory_bytes <= parse_bytes("80 GiB") for o in task.options)


def test_a_lower_memory_limit_leaves_fewer_candidates() -> None:
    limit = parse_bytes("72 GiB")
    given = iteration(*[9] * 12)
    free = build_batching_problem(given, CLUSTER, COSTS)
    tight = build_batching_problem(given, CLUSTER, COSTS, memory_limit_bytes=limit)
    options = [o for c in tight.catalogue for t in c.tasks for o in t.options]
    assert max(o.memory_bytes for o in options) <= limit
    assert len(options) < sum(len(t.options) for c in free.catalogue for t in c.tasks)


def test_clips_that_fit_nowhere_are_named_with_the_memory_they_need() -> None:
    with pytest.raises(InfeasibleError, match=r"needs .* GiB") as caught:
        build_batching_problem(
            iteration(9, 9), CLUSTER, COSTS, memory_limit_bytes=parse_bytes("1 GiB")
        )
    assert "c0" in str(caught.value)


def test_a_token_budget_bounds_the_micro_batch() -> None:
    tokens = MODEL.tokens(SHAPE)
    problem = build_batching_problem(
        iteration(*[9] * 6), CLUSTER, COSTS, max_tokens=2 * tokens + 1, most_clips=2
    )
    # Six clips are together now, but not within the budget.
    assert max(len(row) for row in problem.families[0].kinds) == 2


def test_sizes_that_were_not_measured_are_no_candidates() -> None:
    rows = tuple(
        CostRow(
            task="denoise",
            device_type="H100-80",
            degree=1,
            batch=batch,
            shape=SHAPE,
            duration_us=1000 * batch,
            memory_bytes=2**30,
        )
        for batch in (2, 3)
    )
    table = TableCostModel(model=MODEL, rows=rows, reach=1.0)
    problem = build_batching_problem(iteration(*[9] * 5), CLUSTER, table)
    assert problem.placement_problem(((3, 2),)).cascades[0].label == f"3x{SHAPE}"
    with pytest.raises(InputError):
        problem.segments(((2, 2, 1),))
    with pytest.raises(InputError, match="nearest are"):
        build_batching_problem(iteration(9), CLUSTER, table)


def test_an_illegal_degree_is_an_error_not_an_empty_catalogue() -> None:
    with pytest.raises(InputError, match="divide"):
        build_batching_problem(iteration(9), CLUSTER, COSTS, degrees=[5])
