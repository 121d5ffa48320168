"""Clusters as drivers and schedulers describe them; the fixtures are ours, in their shape."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from arachne_opt.cluster_file import cluster_from_dict, cluster_to_dict
from arachne_opt.device_types import device_type
from arachne_opt.errors import InputError
from arachne_opt.importers.cluster_facts import ClusterOptions, ImportedCluster
from arachne_opt.importers.cluster_sources import (
    CLUSTER_FORMATS,
    read_nvidia_smi,
    recognise_cluster,
)
from arachne_opt.importers.gpu_names import gpu_type
from arachne_opt.importers.hostlist import expand
from arachne_opt.importers.nvidia_topology import read_topology
from arachne_opt.importers.this_host import QUERY, detect

OPTIONS = ClusterOptions(name="c")


def read(folder: Path, name: str, text: str, suffix: str) -> ImportedCluster:
    file = folder / f"in.{suffix}"
    file.write_text(text, encoding="utf-8")
    assert name == recognise_cluster(file)[0]
    found = CLUSTER_FORMATS[name].read(file, OPTIONS)
    again = cluster_from_dict(cluster_to_dict(found.cluster), "again")
    assert again == found.cluster
    return found


def refuse(folder: Path, name: str, text: str, suffix: str, message: str) -> None:
    file = folder / f"in.{suffix}"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        CLUSTER_FORMATS[name].read(file, OPTIONS)
    assert caught.value.exit_code == 2


def kinds(found: ImportedCluster) -> list[tuple[str, str, int]]:
    return [(n.name, n.device_type.name, n.device_count) for n in found.cluster.nodes]


@pytest.mark.parametrize(
    ("name", "memory_gib", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", None, "A100-80"),
        ("NVIDIA A100-SXM4-40GB", 39.6, "A100-40"),
        ("a100", 80, "A100-80"),
        ("nvidia_h100_80gb_hbm3", None, "H100-80"),
        ("Tesla V100-SXM2-32GB", None, "V100-32"),
        ("NVIDIA GeForce RTX 4090", None, "RTX-4090"),
        ("NVIDIA TITAN RTX", None, "Titan-RTX"),
        ("NVIDIA GH200 480GB", None, "GH-96"),
        ("A100-80G", None, "A100-80"),
        ("AMD_Instinct_MI300X", None, "MI300X"),
        ("L4", None, "L4"),
        ("NVIDIA L40S", None, "L40S"),
    ],
)
def test_names_lead_to_types(name: str, memory_gib: float | None, expected: str):
    memory = None if memory_gib is None else int(memory_gib * 2**30)
    assert gpu_type(name, memory_bytes=memory) == (device_type(expected), "")


def test_an_open_name_is_the_smaller_card_and_says_so():
    kind, note = gpu_type("a100")
    assert kind.name == "A100-40"
    assert "--type 'a100=A100-80'" in note
    assert gpu_type("A100", chosen={"a100": device_type("A100-80")})[0].name == "A100-80"


def test_a_card_with_other_memory_is_a_type_of_its_own():
    kind, note = gpu_type("NVIDIA H100 NVL", memory_bytes=94 * 2**30)
    assert (kind.name, kind.memory_bytes) == ("H100-94", 94 * 2**30)
    assert "94 GiB" in note


@pytest.mark.parametrize("name", ["NVIDIA L40", "NVIDIA A10", "1g.10gb", "gpu", "RTX A6000"])
def test_a_name_that_is_not_known_is_not_guessed(name: str):
    with pytest.raises(InputError, match=r"no device type is known as .*--type"):
        gpu_type(name)


# nvidia-smi

QUERIED = """index, name, memory.total [MiB]
0, NVIDIA H100 80GB HBM3, 81559 MiB
1, NVIDIA H100 80GB HBM3, 81559 MiB
2, NVIDIA H100 80GB HBM3, 81559 MiB
3, NVIDIA H100 80GB HBM3, 81559 MiB
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <attached_gpus>2</attached_gpus>
  <gpu id="00000000:07:00.0">
    <product_name>NVIDIA A100-SXM4-40GB</product_name>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <fb_memory_usage><total>40960 MiB</total></fb_memory_usage>
    <bar1_memory_usage><total>65536 MiB</total></bar1_memory_usage>
  </gpu>
  <gpu id="00000000:0B:00.0">
    <product_name>NVIDIA A100-SXM4-40GB</product_name>
    <mig_mode><current_mig>Enabled</current_mig></mig_mode>
    <fb_memory_usage><total>40960 MiB</total></fb_memory_usage>
  </gpu>
</nvidia_smi_log>
"""
MATRIX = """\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU ID\x1b[0m
GPU0\t X \tNV18\tNV18\tNV18\tPXB\tSYS\t0-47\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tPXB\tSYS\t0-47\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\t48-95\t1\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tPIX\t48-95\t1\t\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X

Legend:
  X    = Self
"""


def test_a_query_of_nvidia_smi(tmp_path: Path):
    found = read(tmp_path, "nvidia-smi", QUERIED, "csv")
    assert kinds(found) == [("in", "H100-80", 4)]


def test_the_xml_of_nvidia_smi(tmp_path: Path):
    found = read(tmp_path, "nvidia-smi", XML, "xml")
    assert kinds(found) == [("in", "A100-40", 2)]
    assert any("MIG is on" in note and "in.xml:13" in note for note in found.notes)


def test_a_matrix_gives_nics_domains_and_link(tmp_path: Path):
    (tmp_path / "a.csv").write_text(QUERIED)
    topology = read_topology(MATRIX, "t.txt")
    found = read_nvidia_smi([tmp_path / "a.csv"], ClusterOptions(copies=2), topology)
    node = found.cluster.nodes[0]
    assert (node.nic_of_device, node.numa_of_nic) == ((0, 0, 1, 1), (0, 1))
    assert node.intra_link.bandwidth_bytes_per_s == 450_000_000_000
    assert [n.name for n in found.cluster.nodes] == ["a-0", "a-1"]
    assert not any("not measured" in note for note in found.notes)


def test_gpus_without_nvlink_get_pcie(tmp_path: Path):
    (tmp_path / "a.csv").write_text(QUERIED)
    topology = read_topology(MATRIX.replace("NV18", "SYS"), "t.txt")
    found = read_nvidia_smi([tmp_path / "a.csv"], OPTIONS, topology)
    assert found.cluster.nodes[0].intra_link.bandwidth_bytes_per_s == 32_000_000_000


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        ("0, NVIDIA H100, 81559 MiB\n", "csv", r"in.csv:1: the first line does not name"),
        (QUERIED + "4, NVIDIA H100\n", "csv", r"in.csv:6: 2 fields, the header has 3"),
        (QUERIED.replace("81559 MiB", "a lot", 1), "csv", r"in.csv:2: cannot read the memory"),
        (QUERIED.split("\n")[0] + "\n", "csv", r"in.csv:1: no GPU is listed"),
        (QUERIED + "4, NVIDIA L4, 23034 MiB\n", "csv", r"in.csv:6: NVIDIA L4 beside NVIDIA H100"),
        (QUERIED.replace("NVIDIA H100 80GB HBM3", "Quadro X"), "csv", r"in.csv:2: no device type"),
        (XML.replace("</gpu>", "", 1), "xml", r"in.xml:\d+: no valid XML: mismatched tag"),
        (XML.replace("product_name", "product"), "xml", r"in.xml:\d+: 'name' is missing"),
    ],
)
def test_a_broken_output_of_nvidia_smi_is_explained(
    tmp_path: Path, text: str, suffix: str, message: str
):
    refuse(tmp_path, "nvidia-smi", text, suffix, message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t.txt:1: no matrix that begins with GPU0"),
        (MATRIX.replace("GPU2\tNV18", "GPU9\tNV18"), r"t.txt:4: expected the row of GPU2, found"),
        (MATRIX.replace("NV18\t X \tNV18\tNV18\tPXB\tSYS\t0-47\t0\t\tN/A", "NV18\t X"), r"t.txt:3"),
        (MATRIX.replace("PIX", "QPI", 1), r"t.txt:4: unknown connection 'QPI'"),
        ("\n".join(MATRIX.split("\n")[:3]), r"t.txt:3: 2 rows for 4 GPUs"),
    ],
)
def test_a_broken_matrix_is_explained(text: str, message: str):
    with pytest.raises(InputError, match=message):
        read_topology(text, "t.txt")


def test_a_matrix_of_another_node_is_refused(tmp_path: Path):
    (tmp_path / "a.csv").write_text(QUERIED + "4, NVIDIA H100 80GB HBM3, 81559 MiB\n")
    with pytest.raises(InputError, match=r"t.txt:1: the matrix has 4 GPUs, the node has 5"):
        read_nvidia_smi([tmp_path / "a.csv"], OPTIONS, read_topology(MATRIX, "t.txt"))


def test_this_host_is_asked_by_nvidia_smi():
    found = detect(OPTIONS, run=lambda command: QUERIED if command == QUERY else MATRIX)
    (node,) = found.cluster.nodes
    assert (node.device_type.name, node.nic_of_device) == ("H100-80", (0, 0, 1, 1))


def fake_torch(count: int) -> SimpleNamespace:
    card = SimpleNamespace(name="NVIDIA L4", total_memory=23034 * 2**20)
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_available=lambda: count > 0,
            device_count=lambda: count,
            get_device_properties=lambda number: card,
        )
    )


def test_without_nvidia_smi_torch_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(2))
    found = detect(OPTIONS, run=lambda command: None)
    (node,) = found.cluster.nodes
    assert (node.device_type.name, node.device_count) == ("L4", 2)
    assert any("those that torch sees" in note for note in found.notes)


def test_a_host_without_gpus_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(0))
    with pytest.raises(InputError, match="there is no GPU here"):
        detect(OPTIONS, run=lambda command: None)


# Slurm

NODES = """NodeName=gpu01 Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUTot=128 CPULoad=0.01
   ActiveFeatures=a100,ib
   Gres=gpu:a100:8(S:0-1),nvme:2
   OS=Linux 5.15.0 #1 SMP Tue Jan 2 10:00:00 UTC 2024
   State=MIXED ThreadsPerCore=2 TmpDisk=0
   CfgTRES=cpu=128,mem=1000G,gres/gpu=8,gres/gpu:a100=8

NodeName=gpu02 Arch=x86_64
   ActiveFeatures=ib,v100
   Gres=gpu:4
   State=IDLE

NodeName=gpu03 Gres=gpu:h100:8 State=DOWN*+DRAIN
NodeName=cpu01 Gres=(null) State=IDLE
"""
JOB = """JobId=4711 JobName=train
   JobState=RUNNING Reason=None Dependency=(null)
   NodeList=gpu[01-02]
   NumNodes=2 NumCPUs=256
   TRES=cpu=256,mem=2000G,node=2,gres/gpu=16,gres/gpu:h100=16
"""


def test_nodes_of_slurm(tmp_path: Path):
    found = read(tmp_path, "slurm", NODES, "txt")
    assert kinds(found) == [("gpu01", "A100-40", 8), ("gpu02", "V100-16", 4)]
    assert any("gpu03 (DOWN*+DRAIN)" in note for note in found.notes)
    assert any("1 nodes have no GPU: cpu01" in note for note in found.notes)


def test_two_types_in_a_node_become_two_nodes(tmp_path: Path):
    text = NODES.replace("gpu:a100:8(S:0-1)", "gpu:h100:4,gpu:l4:2")
    names = kinds(read(tmp_path, "slurm", text, "txt"))[:2]
    assert names == [("gpu01-h100", "H100-80", 4), ("gpu01-l4", "L4", 2)]


def test_one_line_a_node_is_the_same(tmp_path: Path):
    lines = [" ".join(block.split()) for block in NODES.replace("\nN", "\n\nN").split("\n\n")]
    found = read(tmp_path, "slurm", "\n".join(lines), "txt")
    assert kinds(found) == [("gpu01", "A100-40", 8), ("gpu02", "V100-16", 4)]


@pytest.mark.parametrize(
    "text",
    [
        JOB,
        JOB.replace("   TRES", "   TresPerNode=gres/gpu:h100:8\n   TRES"),
        JOB + "     Nodes=gpu[01-02] CPU_IDs=0-127 Mem=1 GRES=gpu:h100:8(IDX:0-7)\n",
    ],
)
def test_a_job_of_slurm_has_its_nodes(tmp_path: Path, text: str):
    found = read(tmp_path, "slurm", text, "txt")
    assert kinds(found) == [("gpu01", "H100-80", 8), ("gpu02", "H100-80", 8)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Partition=gpu\n", r"in.txt:1: neither NodeName= nor JobId="),
        (NODES.replace("gpu:a100:8", "gpu:a:b:8"), r"in.txt:4: cannot read the resource"),
        (NODES.replace("a100", "z9"), r"in.txt:4: no device type is known as 'z9'"),
        ("NodeName=a Gres=(null)\n", r"in.txt:1: there is no node with GPUs"),
        (JOB.replace("gpu[01-02]", "gpu[01-x]"), r"in.txt:3: cannot read the hosts"),
        (JOB.replace("gpu[01-02]", "(null)"), r"in.txt:3: the job has no nodes yet"),
        (JOB.replace("=16", "=15"), r"in.txt:5: .* does not say how many GPUs each of 2 nodes"),
        (JOB.replace("   NodeList=gpu[01-02]\n", ""), r"in.txt:1: 'NodeList' is missing"),
    ],
)
def test_a_broken_text_of_slurm_is_explained(tmp_path: Path, text: str, message: str):
    refuse(tmp_path, "slurm", text, "txt", message)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,3]x,m", ["n08x", "n09x", "n10x", "n3x", "m"]),
    ],
)
def test_host_lists(text: str, names: list[str]):
    assert expand(text) == names


# Kubernetes


def kube(**changes: object) -> dict[str, object]:
    node = {
        "metadata": {
            "name": "gpu-a",
            "labels": {
                "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                "nvidia.com/gpu.memory": "81559",
                "topology.kubernetes.io/zone": "eu-1a",
            },
        },
        "spec": {},
        "status": {
            "allocatable": {"cpu": "96", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return node | changes


def kube_text(*nodes: dict[str, object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(nodes)}, indent=1)


def test_nodes_of_kubernetes(tmp_path: Path):
    second = kube(metadata={"name": "gpu-b", "labels": {"nvidia.com/gpu.product": "Tesla-T4"}})
    tired = kube(spec={"unschedulable": True}, metadata={"name": "gpu-c", "labels": {}})
    plain = kube(status={"allocatable": {"cpu": "8"}})
    found = read(tmp_path, "kubernetes", kube_text(kube(), second, tired, plain), "json")
    assert kinds(found) == [("gpu-a", "H100-80", 8), ("gpu-b", "T4", 8)]
    assert [n.zone for n in found.cluster.nodes] == ["eu-1a", "default"]
    assert any("gpu-c (unschedulable)" in note for note in found.notes)
    assert any("1 nodes have no GPU" in note for note in found.notes)


LABELS = {"name": "x", "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "List",\n"items": [}', r"in.json:2: no valid JSON"),
        ('{"kind": "List", "apiVersion": "v1"}', r"in.json:1: 'items' is missing"),
        (kube_text(kube(metadata={})), r"in.json:6: 'name' is missing"),
        (kube_text(kube(metadata={"name": "x", "labels": {}})), r"in.json:\d+: .*is missing"),
        (kube_text(kube(metadata=LABELS)), r"in.json:\d+: .* is a part of a GPU"),
        (
            kube_text(kube(status={"capacity": {"nvidia.com/gpu": 8}})),
            r"in.json:\d+: nvidia.com/gpu must be a whole number in quotes, not 8",
        ),
        (kube_text(kube()).replace("81559", "80 GB"), r"in.json:\d+: .* must be MiB, not '80 GB'"),
        (kube_text(kube()).replace("H100", "X9"), r"in.json:\d+: no device type is known"),
    ],
)
def test_a_broken_list_of_kubernetes_is_explained(tmp_path: Path, text: str, message: str):
    refuse(tmp_path, "kubernetes", text, "json", message)


# Ray


def ray(**changes: object) -> dict[str, object]:
    node = {
        "node_id": "ab12",
        "node_ip": "10.0.0.1",
        "state": "ALIVE",
        "node_name": "10.0.0.1",
        "resources_total": {"CPU": 64.0, "GPU": 8.0, "accelerator_type:A100-80G": 1.0},
    }
    return node | changes


STATUS = """======== Autoscaler status: 2026-01-01 ========
Node status
Active:
 1 node_a
Node: ab12 (node_a)
 Usage:
  0.0/64.0 CPU
  0.0/8.0 GPU
  0.0/1.0 accelerator_type:H100
Node: cd34
 Usage:
  0.0/64.0 CPU
"""


def test_nodes_of_ray(tmp_path: Path):
    dead = ray(state="DEAD", node_name="10.0.0.2")
    head = ray(node_name="10.0.0.3", resources_total={"CPU": 8.0})
    found = read(tmp_path, "ray", json.dumps([ray(), dead, head]), "json")
    assert kinds(found) == [("10.0.0.1", "A100-80", 8)]
    assert any("10.0.0.2" in note for note in found.notes)
    assert any("10.0.0.3" in note for note in found.notes)


def test_a_dump_from_python_is_read_too(tmp_path: Path):
    node = {"NodeID": "a", "Alive": True, "NodeManagerAddress": "10.0.0.1"}
    node["Resources"] = {"GPU": 4.0, "accelerator_type:L4": 1.0}
    assert kinds(read(tmp_path, "ray", json.dumps([node]), "json")) == [("10.0.0.1", "L4", 4)]


def test_a_verbose_status_of_ray(tmp_path: Path):
    assert kinds(read(tmp_path, "ray", STATUS, "txt")) == [("ab12", "H100-80", 8)]


@pytest.mark.parametrize(
    ("text", "suffix", "message"),
    [
        ("[{]", "json", r"in.json:1: no valid JSON"),
        ('[\n{"state": "ALIVE"}]', "json", r"in.json:2: 'node_name' or .* is missing"),
        (json.dumps([ray(resources_total={"GPU": 8.0})]), "json", r"in.json:1: no device type is"),
        (
            json.dumps([ray(resources_total={"GPU": 0.5})]),
            "json",
            r"in.json:1: GPU must be a whole",
        ),
        (json.dumps([ray(state="DEAD")]), "json", r"in.json:1: there is no node with GPUs"),
        (
            STATUS.replace("Node: ", "Knot: "),
            "txt",
            r"in.txt:1: the status does not list its nodes",
        ),
        (STATUS.replace("/8.0 GPU", "/0.5 GPU"), "txt", r"in.txt:5: node ab12 has 0.5 GPUs"),
        (
            STATUS.replace("type:H100", "type:H100\n  0.0/1.0 accelerator_type:L4"),
            "txt",
            r"in.txt:5: node ab12 has accelerator_type:H100 and",
        ),
    ],
)
def test_a_broken_dump_of_ray_is_explained(tmp_path: Path, text: str, suffix: str, message: str):
    refuse(tmp_path, "ray", text, suffix, message)


# SkyPilot

SKY = """name: train
resources:
  cloud: gcp
  accelerators: A100-80GB:8
num_nodes: 2
run: torchrun train.py
"""


@pytest.fixture
def _yaml():
    pytest.importorskip("yaml", reason="PyYAML is not installed")


@pytest.mark.usefixtures("_yaml")
@pytest.mark.parametrize(
    "choice",
    [
        "accelerators: A100-80GB:8",
        "accelerators: {A100-80GB: 8}",
        "accelerators: [A100-80GB:8, H100:8]",
        "any_of:\n    - accelerators: A100-80GB:8\n    - accelerators: H100:8",
    ],
)
def test_a_task_of_skypilot(tmp_path: Path, choice: str):
    text = SKY.replace("accelerators: A100-80GB:8", choice)
    found = read(tmp_path, "skypilot", text, "yaml")
    assert kinds(found) == [("node0", "A100-80", 8), ("node1", "A100-80", 8)]


@pytest.mark.usefixtures("_yaml")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", r"in.yaml:2: no valid YAML"),
        ("run: x\n", r"in.yaml:1: no task with resources"),
        (SKY.replace("accelerators", "accelerator"), r"in.yaml:2: 'accelerators' is missing"),
        (SKY.replace(":8", ":eight"), r"in.yaml:4: cannot read the accelerator"),
        (SKY.replace("num_nodes: 2", "num_nodes: 0"), r"in.yaml:5: num_nodes must be at least 1"),
        (SKY.replace("A100-80GB", "Z9"), r"in.yaml:4: no device type is known as 'Z9'"),
        (SKY.replace("A100-80GB:8", "[1.5]"), r"in.yaml:4: "),
    ],
)
def test_a_broken_task_of_skypilot_is_explained(tmp_path: Path, text: str, message: str):
    refuse(tmp_path, "skypilot", text, "yaml", message)


def test_broken_json_is_explained_before_it_is_recognised(tmp_path: Path):
    (tmp_path / "x.json").write_text('{"kind": "List",\n')
    with pytest.raises(InputError, match=r"x.json:2: no valid JSON"):
        recognise_cluster(tmp_path / "x.json")


def test_an_unknown_file_is_not_guessed(tmp_path: Path):
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(InputError, match="the format was not recognised; known are arachne"):
        recognise_cluster(tmp_path / "x.txt")
