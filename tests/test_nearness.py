"""The distance between problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from arachne_opt.cascade.problem import Cascade, CascadeProblem
from arachne_opt.cascade.problem_json import problem_to_json
from arachne_opt.cost_version import cost_version, lineage
from arachne_opt.errors import InputError
from arachne_opt.nearness import (
    Features,
    cascade_features,
    distance,
    features_of_json,
    pipeline_features,
)
from arachne_opt.pipeline import problem_json
from tests.pipeline_builders import small_problem
from tests.strategies import even_cluster, random_problem, renumber, two_stage

S = 10**6


def shape(name: str, seconds: int) -> Cascade:
    return two_stage(name, {1: seconds * S}, {1: 8 * seconds * S, 2: 5 * seconds * S})


def features(*seconds: int, nodes: int = 4, version: str = "v") -> Features:
    cascades = tuple(shape(f"c{i}", s) for i, s in enumerate(seconds))
    cluster = even_cluster(nodes, 8)
    return cascade_features(
        CascadeProblem(name="p", cluster=cluster, cascades=cascades, cost_version=version)
    )


@pytest.mark.parametrize("seed", range(20))
def test_problems_that_differ_in_names_only_are_at_distance_0(seed: int) -> None:
    problem = random_problem(seed)
    a, b = cascade_features(problem), cascade_features(renumber(problem, seed))
    assert distance(a, b) == 0
    assert (a.family, a.cluster_kinds, a.work) == (b.family, b.cluster_kinds, b.work)


@pytest.mark.parametrize("seed", range(20))
def test_distance_is_symmetric_and_positive(seed: int) -> None:
    a = cascade_features(random_problem(seed))
    b = cascade_features(random_problem(seed + 1))
    assert distance(a, b) == pytest.approx(distance(b, a))
    assert distance(a, b) > 0


def test_more_nodes_more_shapes_and_other_prices_are_farther() -> None:
    base = features(1, 2, 3)
    one_node, two_nodes = features(1, 2, 3, nodes=3), features(1, 2, 3, nodes=6)
    assert 0 < distance(base, one_node) == pytest.approx(1 / 4)
    assert distance(base, two_nodes) == pytest.approx(2 / 6)
    similar, unlike, missing = features(1, 2, 4), features(1, 2, 9), features(1, 2)
    assert 0 < distance(base, similar) < distance(base, missing) < distance(base, unlike)
    assert distance(base, features(1, 2, 3, version="w")) == pytest.approx(0.05)


def test_another_batch_of_a_pipeline_problem_is_near_and_another_model_no_family() -> None:
    problem = small_problem()
    base = pipeline_features(problem)
    assert distance(base, pipeline_features(replace(problem, global_batch=8))) == 0.5
    assert pipeline_features(small_problem(rows=7)).family != base.family


def test_stored_problems_give_the_same_facts() -> None:
    problem, pipes = random_problem(3), small_problem()
    assert features_of_json("cascade", problem_to_json(problem)) == cascade_features(problem)
    stored = problem_json.problem_to_json(pipes)
    assert features_of_json("pipeline", stored) == pipeline_features(pipes)
    with pytest.raises(InputError):
        features_of_json("cascade", {"name": "x"})


def test_versions_of_one_cost_model_have_a_lineage_in_common() -> None:
    old, new = (cost_version("table", ("wan:2/1", "H100-80"), d) for d in ("a" * 64, "b" * 64))
    assert old != new
    assert lineage(old) == lineage(new) == "table/wan-2-1/H100-80"
    for other in ("", "published-durations/1", "corrected:12ab", "v1"):
        assert lineage(other) is None
