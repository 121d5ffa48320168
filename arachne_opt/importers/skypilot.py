"""Clusters of SkyPilot: ``num_nodes`` and ``resources.accelerators`` of a task in YAML."""

from __future__ import annotations

import re
from pathlib import Path

from arachne_opt.importers.cluster_facts import (
    ClusterOptions,
    ImportedCluster,
    NodeFacts,
    cluster_of,
)
from arachne_opt.importers.node import Node, read_text
from arachne_opt.importers.yaml_file import read_yaml_file

_ACCELERATOR = re.compile(r"([A-Za-z][\w.-]*)(?::(\d+))?")


def recognise(source: Path) -> str:
    """Why a file looks like such a task, empty where it does not."""
    if source.suffix.lower() not in (".yaml", ".yml") or not source.is_file():
        return ""
    found = re.search(r"^[\s-]*accelerators\s*:", read_text(source), re.MULTILINE)
    return "resources with accelerators" if found else ""


def read(source: Path, options: ClusterOptions) -> ImportedCluster:
    """The nodes of the first task.

    Raises:
        InputError: no YAML, or no accelerators in it.
    """
    documents = read_yaml_file(source)
    tasks = [task for task in documents.items() if isinstance(task.value, dict)]
    task = next((t for t in tasks if "resources" in t.table()), None)
    notes: list[str] = []
    if task is None:
        raise documents.error(
            "no task with resources is there", "resources: {accelerators: H100:8}"
        )
    if sum("resources" in t.table() for t in tasks) > 1:
        notes.append(f"several tasks are there; the one at line {task.line} is taken")
    nodes = task.find("num_nodes")
    count = nodes.whole(1) if nodes else 1
    accelerator = _chosen(task.get("resources"), notes)
    name, number = _parsed(accelerator)
    facts = [
        NodeFacts(where=accelerator.where, name=f"node{i}", gpu=name, devices=number)
        for i in range(count)
    ]
    return cluster_of(facts, options, notes, where=task.where)


def _chosen(resources: Node, notes: list[str]) -> Node:
    """The accelerator of the resources, the first of several choices."""
    for key in ("any_of", "ordered"):
        choices = resources.find(key)
        if choices is not None and resources.find("accelerators") is None:
            entries = list(choices.items())
            if not entries:
                raise choices.error(f"{key} is empty", "- accelerators: H100:8")
            notes.append(f"the first of {len(entries)} choices under {key} is taken")
            return _chosen(entries[0], notes)
    found = resources.get("accelerators")
    if isinstance(found.value, list | dict) and found.value:
        names = list(found.items()) if isinstance(found.value, list) else []
        several = names or [found.child(key) for key in found.names()]
        if len(several) > 1:
            notes.append(f"the first of {len(several)} accelerators is taken: {several[0].value}")
        return several[0]
    return found


def _parsed(found: Node) -> tuple[str, int]:
    if isinstance(found.value, int | float | type(None)) and not isinstance(found.value, bool):
        # A mapping {H100: 8}: the key is the name.
        return found.key, 1 if found.value is None else found.whole(1)
    match = _ACCELERATOR.fullmatch(found.text().strip())
    if match is None or int(match[2] or 1) < 1:
        raise found.error(f"cannot read the accelerator {found.value!r}", "H100:8")
    return match[1], int(match[2] or 1)
