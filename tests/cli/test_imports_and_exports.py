"""Importers and exporters on the command line."""

import json
import re

import pytest

from arachne_opt.cluster_file import read_cluster
from tests.pipeline_builders import small_problem

OPEN_SORA = "path,text,num_frames,height,width,fps\na.mp4,a kite,49,480,832,16\nb.mp4,x,0,0,0,0\n"


def test_a_bad_row_stops_an_import_and_nothing_is_written(arachne, tmp_path):
    (tmp_path / "m.csv").write_text(OPEN_SORA)
    code, out, err = arachne("workload", "import", "m.csv", "-o", "clips.jsonl")
    assert (code, out) == (2, "")
    assert "recognised as open-sora by columns path and text" in err
    assert "m.csv:3: num_frames must be at least 1, not 0; try --skip-bad" in err
    assert not (tmp_path / "clips.jsonl").exists()


def test_skipped_rows_are_listed_and_counted(arachne, tmp_path):
    (tmp_path / "m.csv").write_text(OPEN_SORA)
    code, out, err = arachne(
        "workload", "import", "m.csv", "-o", "clips.jsonl", "--skip-bad", "--format", "json"
    )
    assert code == 0
    assert "skipped: 1 row is no clip" in err
    value = json.loads(out)
    assert (value["format"], value["from"], value["clips"]) == (
        "arachne.workload-import/1",
        "open-sora",
        1,
    )
    assert value["skipped"][0]["where"].endswith("m.csv:3")
    code, out, _ = arachne("workload", "scan", "clips.jsonl")
    assert code == 0
    assert "49x480x832" in out


def test_an_unknown_format_is_guessed(arachne, tmp_path):
    (tmp_path / "m.csv").write_text(OPEN_SORA)
    code, _, err = arachne("workload", "import", "m.csv", "--from", "opensora", "-o", "x.csv")
    assert code == 2
    assert "did you mean 'open-sora'" in err


def test_sizes_are_read_from_the_clips(arachne, tmp_path):
    av = pytest.importorskip("av", reason="the extra decode is not installed")
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=8)
        stream.width, stream.height = 96, 64
        for _ in range(9):
            for packet in stream.encode(av.VideoFrame(96, 64, "yuv420p")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    (tmp_path / "metadata.csv").write_text("file_name,caption\na.mp4,a cat\n")
    code, _, err = arachne("workload", "import", "metadata.csv", "-o", "clips.jsonl")
    assert code == 0, err
    clip = json.loads((tmp_path / "clips.jsonl").read_text())
    assert (clip["num_frames"], clip["height"], clip["width"], clip["fps"]) == (9, 64, 96, 8.0)


def test_buckets_are_imported_for_the_flag(arachne, tmp_path):
    (tmp_path / "b.py").write_text('bucket_config = {"480p": {33: (1.0, 2)}}\n')
    code, out, _ = arachne("workload", "buckets", "b.py", "-o", "b.json")
    assert code == 0
    assert "buckets from open-sora written to b.json" in out
    (tmp_path / "m.csv").write_text(OPEN_SORA.replace("b.mp4,x,0,0,0,0\n", ""))
    arachne("workload", "import", "m.csv", "-o", "clips.jsonl")
    code, out, _ = arachne("workload", "show", "clips.jsonl", "--buckets", "b.json")
    assert code == 0
    assert "1x33x4" in out


def test_a_cluster_is_imported_and_used(arachne, tmp_path):
    (tmp_path / "n.txt").write_text("NodeName=a Gres=gpu:a100:4 State=IDLE\n")
    code, out, err = arachne(
        "cluster", "import", "n.txt", "--type", "a100=A100-80", "--nodes", 2, "-o", "c.toml"
    )
    assert code == 0
    assert "recognised as slurm" in err
    assert "8 devices (8 A100-80 on 2 nodes)" in out
    assert read_cluster(str(tmp_path / "c.toml")).nodes[1].name == "a-1"
    code, out, _ = arachne("cluster", "import", "n.txt")
    assert code == 0
    assert out.startswith('format = "arachne.cluster/1"')


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--topology", "n.txt"], "--topology goes with --from nvidia-smi"),
        (["--type", "a100"], "cannot read 'a100'; try a100=A100-80"),
        (["--type", "a100=A10080"], "unknown device type 'A10080'"),
        (["n.txt"], "several files go with --from nvidia-smi only"),
        (["--from", "slrm"], "did you mean 'slurm'"),
    ],
)
def test_wrong_uses_of_cluster_import(arachne, tmp_path, more, message):
    (tmp_path / "n.txt").write_text("NodeName=a Gres=gpu:a100:4 State=IDLE\n")
    code, _, err = arachne("cluster", "import", "n.txt", *more)
    assert code == 2
    assert message in err


def test_a_cluster_is_exported_and_what_is_lost_is_said(arachne):
    code, out, err = arachne("cluster", "export", "H100-80:8x4", "--to", "skypilot")
    assert code == 0
    assert out == "resources:\n  accelerators: H100:8\nnum_nodes: 4\n"
    assert "lost: names of nodes" in err


def test_models_are_listed_and_shown(arachne, tmp_path):
    code, out, _ = arachne("models", "list")
    assert code == 0
    assert re.search(r"wan2.1-14b +video +wan", out)
    assert re.search(r"Llama-3-8B +language", out)
    (tmp_path / "config.json").write_text(
        '{"_class_name": "WanTransformer3DModel", "num_layers": 2}'
    )
    code, out, _ = arachne("models", "show", "config.json")
    assert code == 0
    assert "wan" in out
    code, out, _ = arachne("models", "show", "Mixtral-8x7B", "--format", "json")
    assert json.loads(out)["kind"] == "language"
    assert arachne("models", "show", "wan2.1-14")[0] == 2


def test_a_configuration_prices_a_cascade(arachne, tmp_path, manifest):
    config = {"_class_name": "WanTransformer3DModel", "num_attention_heads": 12, "num_layers": 30}
    (tmp_path / "config.json").write_text(json.dumps(config | {"ffn_dim": 8960}))
    spans = []
    for model in ("wan2.1-1.3b", "config.json"):
        code, out, err = arachne(
            "solve", "cascade", "--workload", manifest, "--cluster", "H100-80:4",
            "--model", model, "--time-limit", 1, "--format", "json", "--no-cache",
            "--solver", "list",
        )  # fmt: skip
        assert code == 0, err
        spans.append([plan["makespan_us"] for plan in json.loads(out)["plans"]])
    assert spans[0] == spans[1]


def test_a_pipeline_is_planned_from_a_configuration(arachne, tmp_path):
    config = {
        "model_type": "llama",
        "num_hidden_layers": 8,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "intermediate_size": 2816,
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    code, out, err = arachne(
        "solve", "pipeline", "--model", "config.json", "--sequence-length", 1024, "--cluster",
        "A100-40=4,V100-16=4", "--global-batch", 32, "--time-limit", 1,
    )  # fmt: skip
    assert code == 0, err
    assert "computed from data sheets" in out
    code, _, err = arachne("solve", "pipeline", "--scenario", "x:y")
    assert code == 2
    assert "need --profiles" in err


@pytest.fixture
def plan_id(tmp_path, arachne):
    """A stored pipeline plan with two replicas before one, which no grid has."""
    from arachne_opt.db.store import PlanStore
    from arachne_opt.pipeline.placement import place
    from arachne_opt.pipeline.plan import ReplicaKind
    from arachne_opt.planning.pipeline_service import PipelineService
    from arachne_opt.solvers.base import Limits
    from tests.pipeline_builders import even_pipeline, plan_of, stage

    problem = small_problem()
    a, v = ReplicaKind("A100-40", 2), ReplicaKind("V100-16", 2)
    pipeline = even_pipeline(problem, 1, a, microbatch=2, count=4)
    pipeline = type(pipeline)(
        microbatch=2, stages=(stage(0, 2, a, a), stage(2, 6, v)), microbatches=4
    )
    plan = place(problem, plan_of(problem, pipeline))
    with PlanStore.open(tmp_path / "plans.db") as store:
        answer = PipelineService(store).keep_plan(problem, plan, Limits(time_limit_s=1))
    return answer.record.id


def test_a_plan_that_a_trainer_cannot_run_is_refused_with_an_offer(arachne, plan_id, tmp_path):
    code, out, err = arachne("plans", "export", plan_id, "--to", "megatron", "--time-limit", 1)
    assert (code, out) == (2, "")
    assert "lost: 2, 1 replicas by stage: Megatron-LM has as many of every stage" in err
    assert re.search(r"nearest: \d+\.\d+ s an iteration instead of \d+\.\d+ s \([+-]", err)
    assert "cannot be told plan" in err
    assert "try --nearest" in err


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "accelerate", "deepspeed"])
def test_the_nearest_plan_is_written_on_request(arachne, plan_id, tmp_path, target):
    code, out, err = arachne(
        "plans", "export", plan_id, "--to", target, "--nearest", "--time-limit", 1, "-o", "x"
    )
    assert (code, out) == (0, ""), err
    text = (tmp_path / "x").read_text()
    assert f"nearest to plan {plan_id[:12]}" in text
    assert f"nearest to plan {plan_id[:12]}" not in err


def test_cascades_go_out_by_ranks_and_come_back(arachne, manifest):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    arachne(
        "solve", "cascade", "--workload", manifest, "--cluster", "CPU:2", "--model", "tiny-wan",
        "--solver", "list", "--time-limit", 1,
    )  # fmt: skip
    plans = json.loads(arachne("plans", "list", "--format", "json")[1])["plans"]
    first = plans[0]["id"]
    code, _, err = arachne("plans", "export", first, "--to", "per-rank", "-o", "r.yaml")
    assert code == 0, err
    code, out, err = arachne("plans", "import", "r.yaml")
    assert (code, out) == (0, "imported 1 plans\n"), err
    again = json.loads(arachne("plans", "list", "--format", "json")[1])["plans"]
    (new,) = [p for p in again if p["id"] not in {q["id"] for q in plans}]
    assert new["solver"] == "by-rank"
    assert new["objective_us"] == plans[0]["objective_us"]
    code, out, err = arachne("plans", "export", first, "--to", "groups")
    assert code == 0
    assert json.loads(out)["world_size"] == 2
    assert "lost: starts" in err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--to", "groups"], "is a pipeline plan, which has no form 'groups'; try --to megatron"),
        (["--nearest"], "--nearest goes with --to"),
        (["--to", "megatron", "--with-problem"], "--to takes one plan"),
    ],
)
def test_wrong_uses_of_export(arachne, plan_id, more, message):
    code, _, err = arachne("plans", "export", plan_id, *more)
    assert code == 2
    assert message in err
