"""Plans: their JSON form, their canonical form and what they add up to."""

import json

import pytest

from arachne_opt.errors import InputError
from arachne_opt.pipeline.plan import Pipeline, Replica, ReplicaKind, Stage
from arachne_opt.pipeline.plan_json import plan_from_json, plan_to_json
from arachne_opt.pipeline.problem import from_canonical, to_canonical
from tests.pipeline_builders import even_pipeline, plan_of, random_plan, small_problem, stage


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_survives_its_json_form(seed):
    problem = small_problem(seed=seed % 3)
    plan = random_plan(problem, seed)
    value = json.loads(json.dumps(plan_to_json(plan)))
    back = plan_from_json(value)
    assert plan_to_json(back) == plan_to_json(plan)
    assert back.counts == plan.counts
    assert [s for _, _, s in back.stages()] == [s for _, _, s in plan.stages()]


def test_plain_plans_have_only_the_keys_of_the_public_form():
    problem = small_problem()
    value = plan_to_json(plan_of(problem, even_pipeline(problem, 2, "A100-40", "A100-40")))
    first = value["pipelines"][0]["stages"][0]
    assert set(value) == {"format", "model", "global_batch", "pipelines"}
    assert first == {"layers": [0, 3], "replicas": [{"gpu": "A100-40", "tp": 1, "count": 2}]}


def test_all_extensions_survive_the_json_form():
    kind = ReplicaKind("A100-40", 2, 4, True, "east")
    problem = small_problem(experts=4)
    own = Stage(first=0, end=6, replicas=(Replica(kind, 1),) * 4, recompute=True)
    plan = plan_of(problem, Pipeline(microbatch=1, stages=(own,), microbatches=4), zero1=True)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


def test_the_order_of_replicas_is_kept_because_it_is_the_ring():
    problem = small_problem()
    mixed = stage(0, 6, "A100-40", "V100-16", "A100-40")
    plan = plan_of(problem, Pipeline(microbatch=1, stages=(mixed,)))
    kinds = [
        r.kind.device_type
        for r in plan_from_json(plan_to_json(plan)).pipelines[0].stages[0].replicas
    ]
    assert kinds == ["A100-40", "V100-16", "A100-40"]


def test_counts_cover_an_equal_share_of_the_batch():
    problem = small_problem(batch=17)
    plan = plan_of(
        problem,
        even_pipeline(problem, 1, "A100-40", "A100-40"),
        even_pipeline(problem, 2, "V100-16", microbatch=2, count=9),
    )
    assert plan.counts == (5, 9)
    assert (plan.samples, plan.excess) == (28, 11)
    assert plan.devices_used() == {"A100-40": 2, "V100-16": 2}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"format": "other/1"}, "format"),
        ({"pipelines": [{"microbatch": 0, "stages": []}]}, "microbatch"),
        ({"pipelines": [{"microbatch": True, "stages": []}]}, "microbatch"),
        ({"pipelines": [{"stages": []}]}, "KeyError"),
        ({"pipelines": [{"microbatch": 1, "stages": []}]}, "at least one stage"),
        (
            {"pipelines": [{"microbatch": 1, "stages": [{"layers": [0], "replicas": []}]}]},
            "malformed",
        ),
        ({"pipelines": []}, "needs pipelines"),
        ({"global_batch": -3}, "global_batch"),
        ({"zero1": "yes"}, "zero1"),
    ],
)
def test_malformed_plans_are_refused_in_words(change, word):
    problem = small_problem()
    value = plan_to_json(plan_of(problem, even_pipeline(problem, 1, "A100-40")))
    with pytest.raises(InputError, match=word):
        plan_from_json(value | change)


def test_a_group_over_two_nodes_is_refused():
    raw = {"gpu": "A100-40", "tp": 2, "node": [0, 1]}
    value = {
        "format": "arachne.pipeline-plan/1",
        "model": "m",
        "global_batch": 1,
        "pipelines": [{"microbatch": 1, "stages": [{"layers": [0, 1], "replicas": [raw]}]}],
    }
    with pytest.raises(InputError, match="not on one"):
        plan_from_json(value)


def test_model_and_batch_may_come_from_outside():
    value = {
        "format": "arachne.pipeline-plan/1",
        "pipelines": [
            {"microbatch": 1, "stages": [{"layers": [0, 1], "replicas": [{"gpu": "T4", "tp": 1}]}]}
        ],
    }
    assert plan_from_json(value, model="m", global_batch=7).counts == (7,)
    with pytest.raises(InputError, match="names no model"):
        plan_from_json(value, global_batch=7)


def test_a_stored_plan_comes_back_in_the_numbering_of_an_equal_problem():
    mine = small_problem("A100-40=4+2+1")
    theirs = small_problem("A100-40=1+2+4")
    assert mine.fingerprint() == theirs.fingerprint()
    replicas = tuple(Replica(ReplicaKind("A100-40", tp), n) for n, tp in enumerate((4, 2, 1)))
    own = Stage(first=0, end=6, replicas=replicas)
    plan = plan_of(mine, Pipeline(microbatch=1, stages=(own,)))
    back = from_canonical(to_canonical(plan, mine), theirs)
    assert [r.node for r in back.pipelines[0].stages[0].replicas] == [2, 1, 0]
    assert from_canonical(to_canonical(plan, mine), mine) == plan
