"""Clusters of Kubernetes: ``kubectl get nodes -o json`` with the labels of NVIDIA's operator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from arachne_opt.importers.cluster_facts import (
    ClusterOptions,
    ImportedCluster,
    NodeFacts,
    cluster_of,
    few,
)
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.node import Node

RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_PRODUCTS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
)
_MEMORY = "nvidia.com/gpu.memory"
_ZONE = "topology.kubernetes.io/zone"
_MIB = 2**20


def recognise(source: Path) -> str:
    """Why a file looks like such a list, empty where it does not."""
    if source.suffix.lower() != ".json" or not source.is_file():
        return ""
    value = read_json_file(source).value
    if not isinstance(value, dict) or value.get("kind") not in ("List", "NodeList", "Node"):
        return ""
    return "a list of Kubernetes nodes" if "apiVersion" in value else ""


def read(source: Path, options: ClusterOptions) -> ImportedCluster:
    """The nodes with GPUs that are ready and take work.

    Raises:
        InputError: no such list, or a node without a name or type of its GPUs.
    """
    top = read_json_file(source)
    entries = [top] if top.table().get("kind") == "Node" else list(top.get("items").items())
    notes: list[str] = []
    facts = list(_facts(entries, notes))
    if len({fact.zone for fact in facts}) > 1:
        notes.append("zones are joined by the usual network; [[zone_link]] can say otherwise")
    return cluster_of(facts, options, notes, where=top.where)


def _facts(entries: list[Node], notes: list[str]) -> Iterator[NodeFacts]:
    away: list[str] = []
    plain: list[str] = []
    for entry in entries:
        name = entry.get("metadata").get("name").text()
        count = _count(entry)
        if count == 0:
            plain.append(name)
        elif reason := _why_away(entry):
            away.append(f"{name} ({reason})")
        else:
            yield _node(entry, name, count)
    if away:
        notes.append(f"{len(away)} nodes are left out: {few(away)}")
    if plain:
        notes.append(f"{len(plain)} nodes have no GPU: {few(plain)}")


def _count(entry: Node) -> int:
    """GPUs that can be given to pods, else those that are there."""
    status = entry.get("status")
    resources = status.find("allocatable", "capacity")
    found = resources.find(*RESOURCES) if resources else None
    if found is None:
        return 0
    value = found.value
    if not (isinstance(value, str) and value.isdecimal()):
        raise found.error(f"{found.key} must be a whole number in quotes, not {value!r}", '"8"')
    return int(value)


def _why_away(entry: Node) -> str:
    spec = entry.find("spec")
    if spec is not None and spec.table().get("unschedulable"):
        return "unschedulable"
    conditions = entry.get("status").find("conditions")
    for condition in conditions.items() if conditions else ():
        if condition.get("type").text() == "Ready" and condition.get("status").text() != "True":
            return "not ready"
    return ""


def _node(entry: Node, name: str, count: int) -> NodeFacts:
    metadata = entry.get("metadata")
    labels = metadata.get("labels")
    product = labels.get(*_PRODUCTS)
    memory, zone = labels.find(_MEMORY), labels.find(_ZONE)
    text = product.text()
    if "-MIG-" in text:
        raise product.error(f"{text} is a part of a GPU", "nodes with whole GPUs")
    if memory is not None and not str(memory.value).isdecimal():
        raise memory.error(f"{_MEMORY} must be MiB, not {memory.value!r}", '"81920"')
    return NodeFacts(
        where=product.where,
        name=name,
        gpu=text.removesuffix("-SHARED"),
        devices=count,
        memory_bytes=int(memory.value) * _MIB if memory else None,
        zone=zone.text() if zone else "default",
    )
