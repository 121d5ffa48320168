"""The plans that the benchmark of rehearsals compares."""

from pathlib import Path

import pytest

from arachne_opt.pipeline.plan import Pipeline
from tests.pipeline_builders import plan_of, small_problem, stage

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("pipeline_fidelity")


def test_even_layers_keep_all_but_the_cuts_and_fewer_micro_batches_all_but_their_number(script):
    problem = small_problem(rows=8)
    stages = (stage(0, 1, "V100-16", "V100-16"), stage(1, 8, "A100-40"))
    plan = plan_of(problem, Pipeline(microbatch=2, microbatches=9, stages=stages))
    (even,) = script.even(problem, plan).pipelines
    assert [(s.first, s.end) for s in even.stages] == [(0, 4), (4, 8)]
    assert [s.replicas for s in even.stages] == [s.replicas for s in stages]
    (fewer,) = script.fewer(plan, 4).pipelines
    assert (fewer.microbatches, fewer.stages) == (2, stages)


def test_a_ratio_is_measured_over_planned(script):
    row = script.Row(name="ours", ranks=4, planned_s=2.0, measured_s=2.1)
    assert row.ratio == pytest.approx(1.05)
