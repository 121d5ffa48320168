"""Clusters of Ray: JSON of ``ray list nodes`` or ``ray.nodes()``, text of ``ray status -v``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from arachne_opt.errors import InputError
from arachne_opt.importers.cluster_facts import (
    ClusterOptions,
    ImportedCluster,
    NodeFacts,
    cluster_of,
    few,
)
from arachne_opt.importers.json_file import read_json_file
from arachne_opt.importers.node import Node, read_text

_KIND = "accelerator_type:"
_NODE = re.compile(r"\s*Node: (\S+)(?: \(.*\))?\s*")
_USAGE = re.compile(r"\s*[\d.]+/([\d.]+)\s+(GPU|accelerator_type:\S+)\s*")


def recognise(source: Path) -> str:
    """Why a file looks like such a dump, empty where it does not."""
    if not source.is_file():
        return ""
    text = read_text(source)
    if source.suffix.lower() == ".json":
        found = re.search(r'"(resources_total|NodeManagerAddress)"', text)
        return f"nodes with {found[1]}" if found else ""
    return "a status of Ray's autoscaler" if "Autoscaler status" in text else ""


def read(source: Path, options: ClusterOptions) -> ImportedCluster:
    """The nodes with GPUs that are alive.

    Raises:
        InputError: no such dump, or a node whose type of GPU is not told.
    """
    notes: list[str] = []
    if source.suffix.lower() == ".json":
        top = read_json_file(source)
        facts = list(_of_list(top, notes))
    else:
        facts = list(_of_status(read_text(source), str(source)))
    return cluster_of(facts, options, notes, where=f"{source}:1")


def _of_list(top: Node, notes: list[str]) -> Iterator[NodeFacts]:
    dead: list[str] = []
    plain: list[str] = []
    for entry in top.items():
        name = entry.get("node_name", "node_ip", "NodeName", "NodeManagerAddress").text()
        resources = entry.get("resources_total", "Resources")
        gpus = resources.find("GPU")
        if _is_dead(entry):
            dead.append(name)
        elif gpus is None or not gpus.whole():
            plain.append(name)
        else:
            kinds = [key for key in resources.names() if key.startswith(_KIND)]
            yield _node(resources.where, name, kinds, gpus.whole())
    if dead:
        notes.append(f"{len(dead)} nodes are left out as dead: {few(dead)}")
    if plain:
        notes.append(f"{len(plain)} nodes have no GPU: {few(plain)}")


def _is_dead(entry: Node) -> bool:
    state, alive = entry.find("state"), entry.find("Alive")
    if alive is not None:
        return not alive.flag()
    return state is not None and state.text() != "ALIVE"


def _node(where: str, name: str, kinds: list[str], count: int) -> NodeFacts:
    if len(kinds) > 1:
        what = f"node {name} has {' and '.join(kinds)}"
        raise InputError(what, where=where, hint="nodes with one type of GPU")
    # Without a type it is asked for by the name "gpu".
    gpu = kinds[0].removeprefix(_KIND) if kinds else "gpu"
    return NodeFacts(where=where, name=name, gpu=gpu, devices=count)


def _of_status(text: str, file: str) -> Iterator[NodeFacts]:
    """The nodes of a verbose status; a plain one adds all nodes up."""
    starts = [(n, m[1]) for n, line in enumerate(text.split("\n")) if (m := _NODE.fullmatch(line))]
    if not starts:
        what = "the status does not list its nodes"
        raise InputError(what, where=f"{file}:1", hint="ray status -v, or ray list nodes")
    lines = text.split("\n")
    ends = [n for n, _ in starts[1:]] + [len(lines)]
    for (first, name), end in zip(starts, ends, strict=True):
        gpus, kinds = 0.0, []
        for line in lines[first + 1 : end]:
            usage = _USAGE.fullmatch(line)
            if usage and usage[2] == "GPU":
                gpus = float(usage[1])
            elif usage:
                kinds.append(usage[2])
        if gpus != int(gpus):
            what = f"node {name} has {gpus:g} GPUs"
            raise InputError(what, where=f"{file}:{first + 1}", hint="nodes with whole GPUs")
        if gpus:
            yield _node(f"{file}:{first + 1}", name, kinds, int(gpus))
