"""Pipeline plans for other trainers: what is written, and what is said to be lost."""

import json
import re
import tomllib
from dataclasses import replace

import pytest

from arachne_opt.exporters.grid import Grid, even_blocks, even_rows, grid_of, losses
from arachne_opt.exporters.megatron import layout
from arachne_opt.exporters.rank_order import hosts_of, torn
from arachne_opt.exporters.trainers import TRAINERS
from arachne_opt.pipeline.placement import place
from arachne_opt.pipeline.plan import Pipeline, PipelinePlan, Replica, ReplicaKind, Stage
from tests.pipeline_builders import plan_of, small_problem, stage

A, V = ReplicaKind("A100-40", 2), ReplicaKind("V100-16", 2)
NAMES = tuple(TRAINERS)


def grid(*sizes: int, dp: int = 1, kind: ReplicaKind = A, **more: object) -> Grid:
    """A grid with so many rows by stage."""
    first, stages = 0, []
    for size in sizes:
        stages.append(Stage(first=first, end=first + size, replicas=(Replica(kind),) * dp))
        first += size
    pipeline = Pipeline(microbatch=2, stages=tuple(stages), microbatches=4)
    plan = PipelinePlan(model="m", global_batch=8 * dp, pipelines=(pipeline,))
    return replace(grid_of(plan), **more)


def unrolled(text: str) -> list[str]:
    """The stages of a layout, by the rules of Megatron-LM's documentation."""
    text = re.sub(r"\(([^)]+)\)\*(\d+)", lambda m: m[1] * int(m[2]), text)
    return re.sub(r"(.)\*(\d+)", lambda m: m[1] * int(m[2]), text).split("|")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((3, 3), "Et*2|t*2L"),
        ((1, 4, 1), "E|t*4|L"),
        ((2, 3, 3, 3, 2), "Et|(t*3|)*3tL"),
        ((5, 1, 1, 2), "Et*4|(t|)*2tL"),
        ((12,), "Et*10L"),
    ],
)
def test_a_layout_of_megatron_names_every_row(sizes: tuple[int, ...], expected: str):
    text = layout(grid(*sizes))
    assert text == expected
    assert [len(part) for part in unrolled(text)] == list(sizes)
    joined = "".join(unrolled(text))
    assert joined == "E" + "t" * (sum(sizes) - 2) + "L"


def test_megatron_gets_a_layout_only_where_it_would_cut_otherwise():
    even = TRAINERS["megatron"].export(grid(3, 3), sequence_length=128).text
    assert "layout" not in even
    uneven = TRAINERS["megatron"].export(grid(2, 4), sequence_length=128).text
    assert "  --pipeline-model-parallel-layout 'Et|t*3L'\n" in uneven


def test_megatron_gets_every_degree():
    found = grid(2, 4, dp=4, kind=ReplicaKind("A100-40", 2, 4, True), recompute=True, zero1=True)
    text = TRAINERS["megatron"].export(found, sequence_length=128, source="plan x").text
    for line in (
        "--tensor-model-parallel-size 2",
        "--pipeline-model-parallel-size 2",
        "--expert-model-parallel-size 4",
        "--micro-batch-size 2",
        "--global-batch-size 32",
        "--recompute-granularity full",
        "--use-distributed-optimizer",
        "--num-layers 4",
        "--seq-length 128",
    ):
        assert f"  {line}\n" in text
    assert text.startswith("# m for Megatron-LM, by arachne plan x\n")


def test_torchtitan_gets_the_modules_of_every_stage():
    made = TRAINERS["torchtitan"].export(grid(2, 3, 1, dp=2), sequence_length=128)
    value = tomllib.loads(made.text)
    assert value["parallelism"]["module_fqns_per_model_part"] == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2", "layers.3"],
        ["norm", "output"],
    ]
    assert value["parallelism"]["data_parallel_replicate_degree"] == 2
    assert value["training"] == {"local_batch_size": 8, "global_batch_size": 16, "seq_len": 128}
    assert value["activation_checkpoint"] == {"mode": "none"}
    assert not made.lost


def test_torchtitan_says_that_experts_shard_the_rest_too():
    found = grid(3, 3, dp=4, kind=ReplicaKind("A100-40", 2, 2))
    made = TRAINERS["torchtitan"].export(found, sequence_length=128)
    assert tomllib.loads(made.text)["parallelism"]["data_parallel_shard_degree"] == 4
    assert any("FSDP" in line for line in made.lost)


def test_torchtitan_says_that_its_schedule_needs_more_micro_batches():
    found = grid(2, 1, 1, 1, 1, microbatches=4)
    (line,) = TRAINERS["torchtitan"].export(found, sequence_length=128).lost
    assert line == "4 micro-batches for 5 stages: its 1F1B schedule needs at least as many"


def test_accelerate_and_deepspeed_get_their_configurations():
    found = grid(3, 3, dp=2, zero1=True)
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    config = yaml.safe_load(TRAINERS["accelerate"].export(found, sequence_length=128).text)
    assert config["distributed_type"] == "MEGATRON_LM"
    assert config["num_processes"] == 8
    assert config["megatron_lm_config"] == {
        "megatron_lm_tp_degree": 2,
        "megatron_lm_pp_degree": 2,
        "megatron_lm_num_micro_batches": 4,
        "megatron_lm_recompute_activations": False,
        "megatron_lm_sequence_parallelism": False,
        "megatron_lm_use_distributed_optimizer": True,
    }
    value = json.loads(TRAINERS["deepspeed"].export(found, sequence_length=128).text)
    assert value["config"]["train_batch_size"] == 16
    assert value["config"]["gradient_accumulation_steps"] == 4
    assert value["config"]["zero_optimization"] == {"stage": 1}
    assert value["pipeline_module"]["topology"] == {"pipe": 2, "data": 2, "model": 2}


@pytest.mark.parametrize(
    ("rows", "stages", "blocks", "plain"),
    [
        (12, 2, (0, 6, 12), (0, 6, 12)),
        (12, 5, (0, 3, 5, 7, 9, 12), (0, 3, 6, 8, 10, 12)),
        (12, 3, None, (0, 4, 8, 12)),
        (12, 1, (0, 12), (0, 12)),
        (12, 11, None, (0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)),
    ],
)
def test_trainers_cut_evenly_each_in_its_way(rows, stages, blocks, plain):
    assert even_blocks(rows, stages) == blocks
    assert even_rows(rows, stages) == plain


# What is lost.


def pipeline(*stages: Stage, count: int = 4, microbatch: int = 1) -> Pipeline:
    return Pipeline(microbatch=microbatch, stages=stages, microbatches=count)


def lost(*pipelines: Pipeline, trainer: str = "megatron", zero1: bool = False) -> str:
    plan = plan_of(small_problem(), *pipelines, zero1=zero1)
    return "; ".join(losses(plan, TRAINERS[trainer].abilities))


def test_a_uniform_plan_loses_nothing():
    plan = pipeline(stage(0, 3, A, A), stage(3, 6, V, V))
    for name in NAMES:
        assert lost(plan, trainer=name) == ""


def test_equal_pipelines_are_replicas_of_one():
    one, other = pipeline(stage(0, 3, A), stage(3, 6, V)), pipeline(stage(0, 3, V), stage(3, 6, A))
    assert lost(one, other) == ""
    found = grid_of(plan_of(small_problem(), one, other))
    assert (found.dp, found.pp, found.microbatches) == (2, 2, 4)


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        (
            [pipeline(stage(0, 3, A), stage(3, 6, ReplicaKind("V100-16", 4)))],
            "tensor-parallel degrees 2, 4 by stage: Megatron-LM has one for all stages",
        ),
        (
            [pipeline(stage(0, 6, A, ReplicaKind("V100-16", 1)))],
            "tensor-parallel degrees 1/2 by stage",
        ),
        (
            [pipeline(stage(0, 3, A, A), stage(3, 6, V))],
            "2, 1 replicas by stage: Megatron-LM has as many of every stage",
        ),
        (
            [pipeline(stage(0, 3, A), stage(3, 6, V)), pipeline(stage(0, 6, A))],
            "2 pipelines of 2 shapes (rows 3+3, 4 micro-batches of 1; rows 6, 4 micro-batches",
        ),
        (
            [pipeline(stage(0, 6, A)), pipeline(stage(0, 6, V), count=3)],
            "2 pipelines of 2 shapes",
        ),
        (
            [pipeline(stage(0, 3, A, recompute=True), stage(3, 6, V))],
            "activations are rebuilt in 1 of 2 stages: Megatron-LM rebuilds them in all",
        ),
        (
            [pipeline(stage(0, 3, A, A), stage(3, 6, *[ReplicaKind("V100-16", 2, 2)] * 2))],
            "expert degrees 1, 2 by stage",
        ),
    ],
)
def test_what_megatron_cannot_be_told_is_said(pipelines: list[Pipeline], message: str):
    assert message in lost(*pipelines)


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        ("megatron", ""),
        ("torchtitan", ""),
        ("accelerate", "stages of 2+4 rows: accelerate would cut them into 3+3"),
        ("deepspeed", "stages of 2+4 rows: DeepSpeed would cut them into 3+3"),
    ],
)
def test_uneven_stages_are_lost_where_the_trainer_cuts(trainer: str, message: str):
    assert lost(pipeline(stage(0, 2, A), stage(2, 6, V)), trainer=trainer) == message


def test_what_only_some_trainers_know():
    experts = pipeline(stage(0, 6, *[ReplicaKind("A100-40", 1, 2, True)] * 2))
    assert "experts are spread" in lost(experts, trainer="deepspeed")
    assert lost(experts, trainer="torchtitan") == ""
    assert "ZeRO-1" in lost(pipeline(stage(0, 6, A)), trainer="torchtitan", zero1=True)
    rebuilt = pipeline(stage(0, 6, A, recompute=True))
    assert "rebuild those of attention alone" in lost(rebuilt, trainer="accelerate")
    assert lost(rebuilt, trainer="deepspeed") == ""


def test_samples_beyond_the_batch_are_trained():
    plan = plan_of(small_problem(batch=15), pipeline(stage(0, 6, A, A), count=8))
    assert grid_of(plan).global_batch == 16


# Ranks.


def test_ranks_stand_where_the_plan_wants_them():
    problem = small_problem("A100-40=8,V100-16=8")
    one = ReplicaKind("A100-40", 4), ReplicaKind("V100-16", 4)
    plan = plan_of(problem, pipeline(stage(0, 3, one[0], one[0]), stage(3, 6, one[1], one[1])))
    hosts = hosts_of(grid_of(place(problem, plan)))
    assert [(h.device_type, h.node, h.ranks[0], h.ranks[-1]) for h in hosts] == [
        ("A100-40", 0, 0, 3),
        ("A100-40", 1, 4, 7),
        ("V100-16", 0, 8, 11),
        ("V100-16", 1, 12, 15),
    ]
    assert not torn(hosts)


def test_a_node_shared_by_neighbouring_stages_stays_whole():
    def on(node: int) -> Replica:
        return Replica(ReplicaKind("A100-40", 2), node)

    first = Stage(first=0, end=3, replicas=(on(1), on(0), on(0)))
    last = Stage(first=3, end=6, replicas=(on(2), on(1), on(2)))
    plan = plan_of(small_problem(batch=12), Pipeline(microbatch=1, stages=(first, last)))
    hosts = hosts_of(grid_of(plan))
    assert [(h.node, h.ranks) for h in hosts] == [
        (0, (0, 1, 2, 3)),
        (1, (4, 5, 6, 7)),
        (2, (8, 9, 10, 11)),
    ]


def test_a_node_that_a_launcher_would_tear_is_named():
    def on(node: int) -> Replica:
        return Replica(ReplicaKind("A100-40", 2), node)

    stages = tuple(
        Stage(first=2 * i, end=2 * i + 2, replicas=(on(node),)) for i, node in enumerate((0, 1, 0))
    )
    found = grid_of(plan_of(small_problem(), Pipeline(microbatch=1, stages=stages)))
    (line,) = torn(hosts_of(found))
    assert line.startswith("ranks 0-1, 4-5 on A100-40 node 0: a launcher numbers")
    assert line in TRAINERS["megatron"].export(found, sequence_length=1).lost
