"""Jobs, commands that start them, and the look at devices before the first collective."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from arachne_opt.cluster import DeviceType
from arachne_opt.device_types import device_type
from arachne_opt.errors import InputError
from arachne_opt.executor.options import CheckpointOptions, UpdateOptions
from arachne_opt.executor.pipeline.devices import (
    SeenDevice,
    is_of_type,
    refuse_other_devices,
    see_device,
)
from arachne_opt.executor.pipeline.job import PipelineJob, TokenSource, job_from_json, job_to_json
from arachne_opt.executor.pipeline.launch import compose, hosts_of
from arachne_opt.executor.pipeline.worker import refuse_other_size
from arachne_opt.executor.slurm import take_rank_from_slurm
from tests.executor.pipeline.jobs import tiny_job, tiny_problem, uniform_plan

GIB = 2**30
MIXED = ("A100-40=2,V100-16=2", "V100-16", "A100-40")
JOB, REPORT = Path("job.json"), Path("report.json")


def seen(rank, name, gib, free=None):
    total = int(gib * GIB)
    host = f"host{rank // 2}"
    return SeenDevice(
        rank=rank, host=host, name=name, total_bytes=total, free_bytes=int((free or gib) * GIB)
    )


V100 = "Tesla V100-SXM2-16GB"
A100 = "NVIDIA A100-SXM4-40GB"


def test_a_job_survives_json_and_knows_what_is_planned():
    job = tiny_job(
        *MIXED,
        steps=7,
        update=UpdateOptions(precision="bf16", clip_norm=1.0),
        checkpoints=CheckpointOptions(folder="/kept", every=3),
        source=TokenSource(path="/tokens.bin", dtype="uint32", length=16),
    )
    back = job_from_json(json.loads(json.dumps(job_to_json(job))))
    assert back == job
    assert (back.world_size, back.emulated, back.model_name) == (4, False, "tiny-llama")
    rehearsal = replace(job, spec=None, source=None, speed=2.0)
    assert job_from_json(job_to_json(rehearsal)) == rehearsal
    assert rehearsal.planned_us == pytest.approx(job.planned_us / 2, abs=1)
    assert rehearsal.model_name == "emulated tiny-llama"
    assert min(job.needed_bytes(rank) for rank in range(4)) > 0


def test_jobs_that_cannot_be_run_are_refused():
    job = tiny_job()
    with pytest.raises(InputError, match="a training needs a model and tokens"):
        replace(job, source=None)
    with pytest.raises(InputError, match="steps must be positive"):
        replace(job, steps=0)
    with pytest.raises(InputError, match="type of tokens"):
        TokenSource(length=4, dtype="float32")
    with pytest.raises(InputError, match="for 4 devices, this run has 3 ranks"):
        refuse_other_size(job, 3)
    value = job_to_json(job)
    with pytest.raises(InputError, match="malformed job"):
        job_from_json({**value, "update": {"sharing": 1}})
    with pytest.raises(InputError, match="format"):
        job_from_json({**value, "format": "arachne.pipeline-job/9"})


def test_a_job_knows_what_its_engine_cannot_run():
    job = tiny_job()
    with pytest.raises(InputError, match="cannot run the plan: pipeline 0 has stages of unlike"):
        replace(job, engine="torch")
    with pytest.raises(InputError, match="only torch's engine interleaves"):
        replace(job, schedule="interleaved", chunks=2)
    uniform = replace(job, plan=uniform_plan(job.problem), engine="torch")
    with pytest.raises(InputError, match="stage 0 has 3 rows for 4 chunks"):
        replace(uniform, schedule="interleaved", chunks=4)
    with pytest.raises(InputError, match="a rehearsal runs tables"):
        replace(uniform, spec=None, source=None)
    with pytest.raises(InputError, match="unknown schedule 'zero-bubble'"):
        replace(uniform, schedule="zero-bubble")
    assert job_from_json(job_to_json(uniform)) == uniform


def test_a_schedule_is_planned_as_it_is_run():
    job = tiny_job()
    plain = replace(job, plan=uniform_plan(job.problem), engine="torch")
    gpipe = replace(plain, schedule="gpipe")
    interleaved = replace(plain, schedule="interleaved", chunks=2)
    # GPipe keeps all four micro-batches, 1F1B two in the first stage; chunks shorten the bubble.
    assert gpipe.needed_bytes(0) > plain.needed_bytes(0)
    assert interleaved.planned_us < plain.planned_us


def test_devices_of_the_plan_pass_in_its_order():
    job = tiny_job(*MIXED)
    kinds = [m.kind.device_type for m in job.layout.members]
    assert kinds == ["V100-16", "V100-16", "A100-40", "A100-40"]
    refuse_other_devices(
        job, [seen(0, V100, 15.8), seen(1, V100, 15.8), seen(2, A100, 39.4), seen(3, A100, 39.4)]
    )


def test_other_devices_are_refused_with_what_each_rank_has():
    job = tiny_job(*MIXED)
    swapped = [seen(0, A100, 39.4), seen(1, V100, 15.8), seen(2, V100, 15.8), seen(3, A100, 39.4)]
    with pytest.raises(InputError) as caught:
        refuse_other_devices(job, swapped)
    text = str(caught.value)
    assert "not those of the plan on 2 of 4 ranks" in text
    assert f"rank 0 (host0) has {A100} with 39.4 GiB, the plan wants V100-16" in text
    assert f"rank 2 (host1) has {V100} with 15.8 GiB, the plan wants A100-40" in text
    assert "rank 1" not in text
    assert "--any-device" in text


def test_too_little_free_memory_is_refused():
    job = tiny_job(*MIXED)
    found = [seen(0, V100, 15.8), seen(1, V100, 15.8), seen(2, A100, 39.4), seen(3, A100, 39.4)]
    found[3] = seen(3, A100, 39.4, free=1e-6)
    with pytest.raises(InputError, match=r"on 1 of 4 ranks: rank 3 \(host1\) needs .*, its NVIDIA"):
        refuse_other_devices(job, found)


@pytest.mark.parametrize(
    ("kind", "name", "gib", "same"),
    [
        ("V100-16", V100, 15.8, True),
        ("V100-32", V100, 15.8, False),
        ("A100-80", "NVIDIA A100 80GB PCIe", 79.3, True),
        ("A100-40", "NVIDIA A100 80GB PCIe", 79.3, False),
        ("L4", "NVIDIA L4", 22.5, True),
        ("L4", "NVIDIA L40S", 44.5, False),
        ("GH-96", "NVIDIA GH200 480GB", 95.6, True),
        ("H200-141", "NVIDIA H200", 139.8, True),
        ("RTX-2080", "NVIDIA GeForce RTX 2080 Ti", 10.7, True),
        ("CPU", "CPU", 23.0, True),
        ("A100-40", "CPU", 23.0, False),
        ("CPU", "NVIDIA H200", 139.8, False),
    ],
)
def test_a_device_is_known_by_the_words_of_its_name_and_its_memory(kind, name, gib, same):
    assert is_of_type(seen(0, name, gib), device_type(kind)) is same


def test_a_type_of_ones_own_is_compared_by_its_name():
    own = DeviceType(
        name="Foo-X",
        memory_bytes=GIB,
        peak_flops_per_s=1,
        memory_bandwidth_bytes_per_s=1,
    )
    assert is_of_type(seen(0, "ACME foo x", 1), own)
    assert not is_of_type(seen(0, "ACME food", 1), own)


def test_torchrun_starts_each_node_in_the_order_of_the_plan():
    job = tiny_job(*MIXED)
    lines = compose(job, JOB, REPORT, hosts=hosts_of(job, ("v", "a")), rendezvous="v:3000")
    assert lines[0] == "# on v: ranks 0-1 on 2 x V100-16"
    assert lines[2] == "# on a: ranks 2-3 on 2 x A100-40"
    for number, line in enumerate(lines[1::2]):
        wanted = f"--max-restarts=0 --nnodes=2 --node-rank={number} --nproc-per-node=2"
        assert f"{wanted} --master-addr=v --master-port=3000" in line
        assert line.endswith("-m arachne_opt.executor.worker job.json report.json")


def test_nodes_of_unlike_sizes_each_get_their_number_of_ranks():
    problem = tiny_problem("A100-40=1,V100-16=2")
    job = tiny_job()
    plan = job.plan.pipelines[0]
    first, second = plan.stages
    kinds = (first.replicas[0].kind._replace(device_type="V100-16", tp=2), second.replicas[0].kind)
    stages = (
        replace(first, replicas=(first.replicas[0]._replace(kind=kinds[0], node=0),)),
        replace(
            second,
            replicas=(
                second.replicas[0]._replace(kind=kinds[1]._replace(device_type="A100-40"), node=0),
            ),
        ),
    )
    small = replace(job.plan, pipelines=(replace(plan, stages=stages),))
    job = PipelineJob(problem=problem, plan=small)
    text = "\n".join(compose(job, JOB, REPORT, hosts=hosts_of(job)))
    assert re.findall(r"nproc-per-node=(\d)", text) == ["2", "1"]
    names = [node.name for kind in ("V100-16", "A100-40") for node in problem.nodes_of_type[kind]]
    assert [f"# on {name}" in text for name in names] == [True, True]
    assert f"--master-addr={names[0]} --master-port=29500" in text
    srun = compose(job, JOB, REPORT, hosts=hosts_of(job), launcher="srun")
    assert f"{names[0]} {names[0]} {names[1]} > job.hosts" in srun[2]


def test_srun_gets_a_line_for_each_rank():
    job = tiny_job(*MIXED)
    lines = compose(job, JOB, REPORT, hosts=hosts_of(job, ("v", "a")), launcher="srun")
    assert lines[:2] == ["# v: ranks 0-1 on 2 x V100-16", "# a: ranks 2-3 on 2 x A100-40"]
    assert lines[2] == r"printf '%s\n' v v a a > job.hosts"
    assert lines[3].startswith("MASTER_ADDR=v MASTER_PORT=29500 SLURM_HOSTFILE=job.hosts srun ")
    assert "--ntasks=4 --distribution=arbitrary" in lines[3]


def test_one_machine_may_restart_its_ranks_and_many_may_not():
    problem = tiny_problem("CPU=4", per_node=4)
    job = replace(tiny_job(), problem=problem)
    plan = replace(
        job.plan,
        pipelines=tuple(
            replace(
                p,
                stages=tuple(
                    replace(s, replicas=tuple(r._replace(node=0) for r in s.replicas))
                    for s in p.stages
                ),
            )
            for p in job.plan.pipelines
        ),
    )
    job = replace(job, plan=plan)
    line = compose(job, JOB, REPORT, hosts=hosts_of(job), max_restarts=3)[1]
    assert line.startswith("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 ")
    assert "--max-restarts=3 --nproc-per-node=4 --standalone" in line
    two = tiny_job()
    with pytest.raises(InputError, match="restarts the ranks of one machine only"):
        compose(two, JOB, REPORT, hosts=hosts_of(two), max_restarts=1)
    with pytest.raises(InputError, match="1 hosts for the 2 nodes"):
        hosts_of(two, ("a",))
    with pytest.raises(InputError, match="unknown launcher"):
        compose(two, JOB, REPORT, hosts=hosts_of(two), launcher="ssh")


def test_ranks_that_srun_started_are_named_as_torchrun_would():
    slurm = {
        "SLURM_PROCID": "9",
        "SLURM_NTASKS": "10",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "2",
        "SLURM_TASKS_PER_NODE": "4(x2),2",
    }
    take_rank_from_slurm(slurm)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert [slurm[name] for name in names] == ["9", "10", "1", "2"]
    torchrun = {"RANK": "3", "SLURM_PROCID": "0"}
    take_rank_from_slurm(torchrun)
    assert torchrun["RANK"] == "3"
    nothing = {}
    take_rank_from_slurm(nothing)
    assert not nothing


def test_a_rank_on_a_cpu_sees_its_share_of_the_memory(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    alone = see_device(0, torch.device("cpu"))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    shared = see_device(3, torch.device("cpu"))
    assert (alone.name, shared.rank) == ("CPU", 3)
    assert 0 < shared.free_bytes < alone.free_bytes < alone.total_bytes
