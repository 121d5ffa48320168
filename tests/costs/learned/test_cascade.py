"""The learned model of cascade tasks, as the planner asks it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from arachne_opt.cluster_file import parse_shorthand
from arachne_opt.cost_version import lineage
from arachne_opt.costs.analytic import analytic_for_cluster
from arachne_opt.costs.build import build_problem
from arachne_opt.costs.learned.cascade import (
    LearnedCostModel,
    fit_cascade,
    learnable,
    learned_from_json,
)
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.errors import InputError
from arachne_opt.models import model_spec
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape
from tests.costs.learned_builders import QUICK, made_up

WAN = model_spec("wan2.1-1.3b")
CLUSTER = parse_shorthand("H100-80:4x2")
H100 = DEVICE_TYPES["H100-80"]


@pytest.fixture(scope="module")
def model() -> LearnedCostModel:
    found = fit_cascade("ours", WAN, made_up(noise=0.03), QUICK)
    return found.for_cluster(analytic_for_cluster(WAN, CLUSTER), None)


def batch(frames: int, clips: int = 1) -> MicroBatch:
    shape = Shape(frames=frames, height=256, width=256)
    members = tuple(Clip(id=f"c{i}", shape=shape) for i in range(clips))
    return MicroBatch(id=f"b{frames}", shape=shape, clips=members)


def test_measured_shapes_and_those_between_are_priced_near(model: LearnedCostModel) -> None:
    truth = {(m.task, m.frames, m.degree): m.duration_us for m in made_up(frames=(21, 33))}
    for (task, frames, degree), duration_us in truth.items():
        options = {o.degree: o for o in model.options(task, batch(frames), H100)}
        assert options[degree].duration_us == pytest.approx(duration_us, rel=0.1)


def test_memory_is_learned_where_it_was_measured(model: LearnedCostModel) -> None:
    options = {o.degree: o for o in model.options("denoise", batch(33), H100)}
    assert options[1].memory_bytes == pytest.approx(1.33e9, rel=0.1)
    assert model.resident_bytes(H100) == 0
    blind = tuple(replace(m, memory_bytes=0) for m in made_up())
    other = fit_cascade("ours", WAN, blind, QUICK)
    assert other.tasks["denoise"].memory_bytes is None
    assert other.resident_bytes(H100) == other.analytic.resident_bytes(H100)


def test_a_problem_is_built_and_fallbacks_are_told(model: LearnedCostModel) -> None:
    fresh = model.for_cluster(model.analytic, None)
    problem = build_problem(Iteration(name="it", micro_batches=(batch(17),)), CLUSTER, fresh)
    assert {o.degree for o in problem.cascades[0].tasks[1].options} == {1, 2, 3, 4, 6}
    # Degrees 3 and 6 were never measured: the core prices them, and it is remembered.
    assert {(task, degree) for task, _, degree, _ in fresh.fallbacks} == {
        (task, degree) for task in ("encode", "denoise") for degree in (3, 6)
    }


def test_risk_prices_higher_and_makes_another_version(model: LearnedCostModel) -> None:
    cautious = model.for_cluster(model.analytic, 0.9)
    for task in ("encode", "denoise"):
        pairs = zip(
            model.options(task, batch(25), H100),
            cautious.options(task, batch(25), H100),
            strict=True,
        )
        assert all(high.duration_us > middle.duration_us for middle, high in pairs)
    assert cautious.version != model.version
    # A cautious model does not make plans of the other stale.
    assert lineage(cautious.version) != lineage(model.version)
    with pytest.raises(InputError, match="between 0 and 1"):
        model.for_cluster(model.analytic, 1.5)


def test_json_keeps_the_model(model: LearnedCostModel) -> None:
    read = learned_from_json(json.loads(json.dumps(model.to_json())), "file")
    read = read.for_cluster(model.analytic, None)
    assert read.version == model.version
    for task in ("encode", "denoise"):
        for mine, other in zip(
            model.options(task, batch(29), H100), read.options(task, batch(29), H100), strict=True
        ):
            assert other.duration_us == pytest.approx(mine.duration_us, rel=1e-3)


def test_damaged_and_foreign_files_are_refused(model: LearnedCostModel) -> None:
    value = model.to_json()
    with pytest.raises(InputError, match="format"):
        learned_from_json({**value, "format": "arachne.learned-cascade/0"}, "file")
    with pytest.raises(InputError, match="damaged"):
        learned_from_json({**value, "tasks": {"denoise": {"degrees": [1]}}}, "file")


def test_nothing_measured_and_unknown_tasks_are_errors(model: LearnedCostModel) -> None:
    with pytest.raises(InputError, match="no measured task"):
        fit_cascade("ours", WAN, (), QUICK)
    with pytest.raises(InputError, match="has learned"):
        model.options("text", batch(17), H100)


def test_activations_computed_again_are_another_matter() -> None:
    again = [replace(m, recompute=True, duration_us=2 * m.duration_us) for m in made_up()]
    assert learnable([*made_up(), *again]) == made_up()


def test_repeated_measurements_count_as_one() -> None:
    rows = made_up(noise=0.03)
    many = fit_cascade("ours", WAN, [*rows, *rows[:6], *rows[:6]], QUICK)
    once = fit_cascade("ours", WAN, rows, QUICK)
    mine, other = (
        [o.duration_us for o in m.options("encode", batch(17), H100) if o.degree in (1, 2, 4)]
        for m in (many, once)
    )
    assert mine == pytest.approx(other, rel=0.02)


def test_prices_of_a_learned_model_need_no_torch(model: LearnedCostModel, tmp_path: Path) -> None:
    """Planning must not pay for importing it."""
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model.to_json()), encoding="utf-8")
    code = """
import json, sys
sys.path.insert(0, sys.argv[1])
from arachne_opt.costs.learned.cascade import learned_from_json
from arachne_opt.device_types import DEVICE_TYPES
from arachne_opt.workload import Clip, MicroBatch, Shape
model = learned_from_json(json.load(open(sys.argv[2])), "file")
shape = Shape(frames=17, height=256, width=256)
batch = MicroBatch(id="b", shape=shape, clips=(Clip(id="c", shape=shape),))
assert model.options("denoise", batch, DEVICE_TYPES["H100-80"])
print("torch" in sys.modules, "sqlalchemy" in sys.modules)
"""
    root = Path(__file__).resolve().parent.parent.parent.parent
    command = [sys.executable, "-c", code, str(root), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["False", "False"]
