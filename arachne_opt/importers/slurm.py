"""Clusters of Slurm: the text of ``scontrol show node`` or ``scontrol show job``, also with ``-o``.

A node's GPUs are its ``Gres``, such as ``gpu:a100:4(S:0-1)``. A job has the nodes of its
``NodeList`` with ``TresPerNode``, or what ``-d`` says about each.
"""

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
from arachne_opt.importers.gpu_names import gpu_type
from arachne_opt.importers.hostlist import expand
from arachne_opt.importers.node import Node, read_text

_KEY = re.compile(r"([A-Za-z][\w/:]*)=(.*)")
_GRES = re.compile(r"gres[/:]gpu|gpu", re.IGNORECASE)
_AWAY = ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "MAINT", "UNKNOWN")


def recognise(source: Path) -> str:
    """Why a file looks like such a text, empty where it does not."""
    if not source.is_file():
        return ""
    text = read_text(source).lstrip()
    if text.startswith("NodeName="):
        return "nodes of scontrol"
    return "jobs of scontrol" if text.startswith("JobId=") else ""


def read(source: Path, options: ClusterOptions) -> ImportedCluster:
    """The nodes that can be used, or those of the job.

    Raises:
        InputError: the text is none of these, or an entry cannot be read; says which line.
    """
    text, file = read_text(source), str(source)
    notes: list[str] = []
    if text.lstrip().startswith("JobId="):
        facts = [f for job in _blocks(text, file, "JobId") for f in _of_job(job)]
    elif text.lstrip().startswith("NodeName="):
        facts = list(_of_nodes(_blocks(text, file, "NodeName"), notes))
    else:
        what = "neither NodeName= nor JobId= at the beginning"
        raise InputError(what, where=f"{file}:1", hint="scontrol show node, or scontrol show job")
    return cluster_of(facts, options, notes, where=f"{file}:1")


def _blocks(text: str, file: str, first: str) -> Iterator[Node]:
    """One node per entry, with the line of every key; a repeated key gets a number."""
    values: dict[str, str] = {}
    lines: dict[tuple[str | int, ...], int] = {}
    key = ""
    for number, line in enumerate(text.split("\n"), 1):
        for word in line.split():
            match = _KEY.fullmatch(word)
            if match is None:
                # A value with spaces, such as the reason of a drain.
                values[key] = f"{values.get(key, '')} {word}".strip()
                continue
            key = match[1]
            if key == first and values:
                yield Node(values, file, lines, loose=True)
                values, lines = {}, {}
            lines.setdefault((), number)
            while key in values:
                key += "+"
            values[key] = match[2]
            lines[key,] = number
    if values:
        yield Node(values, file, lines, loose=True)


def _of_nodes(blocks: Iterator[Node], notes: list[str]) -> Iterator[NodeFacts]:
    away: list[str] = []
    plain: list[str] = []
    for block in blocks:
        name = block.get("NodeName").text()
        state = block.find("State")
        if state is not None and any(word in state.text().upper() for word in _AWAY):
            away.append(f"{name} ({state.text()})")
            continue
        gres = block.find("Gres")
        found = list(_gpus(gres)) if gres else []
        if not found:
            plain.append(name)
        for kind, count in found:
            suffix = f"-{kind}" if len(found) > 1 else ""
            gpu = kind or _feature(block) or "gpu"
            assert gres is not None  # it has GPUs
            yield NodeFacts(where=gres.where, name=name + suffix, gpu=gpu, devices=count)
        if len(found) > 1:
            notes.append(f"{name} has several types: each is taken as a node of its own")
    if away:
        notes.append(f"{len(away)} nodes are left out: {few(away)}")
    if plain:
        notes.append(f"{len(plain)} nodes have no GPU: {few(plain)}")


def _feature(block: Node) -> str:
    """A feature of a node that is a device type, where its Gres names none."""
    features = block.find("ActiveFeatures", "AvailableFeatures")
    for name in features.text().split(",") if features else ():
        try:
            gpu_type(name)
        except InputError:
            continue
        return name
    return ""


def _of_job(job: Node) -> Iterator[NodeFacts]:
    details = [key for key in job.names() if key.rstrip("+") == "Nodes"]
    if details:
        for key in details:
            gres = job.get("GRES" + key[len("Nodes") :])
            yield from _on_hosts(job.child(key), gres, list(_gpus(gres)))
        return
    hosts = job.get("NodeList")
    per_node = job.find("TresPerNode", "Gres")
    if per_node is not None:
        yield from _on_hosts(hosts, per_node, list(_gpus(per_node)))
        return
    total = job.get("TRES", "AllocTRES", "ReqTRES")
    names = _hosts(hosts)
    shares = [(kind, count / len(names)) for kind, count in _gpus(total)]
    typed = [share for share in shares if share[0]] or shares
    if not typed or any(count != int(count) for _, count in typed):
        what = f"{total.text()} does not say how many GPUs each of {len(names)} nodes has"
        raise total.error(what, "scontrol show job -d")
    yield from _on_hosts(hosts, total, [(kind, int(count)) for kind, count in typed])


def _on_hosts(hosts: Node, gres: Node, found: list[tuple[str, int]]) -> Iterator[NodeFacts]:
    if not found:
        raise gres.error(f"{gres.text()} names no GPU", "a job that has some")
    for name in _hosts(hosts):
        for kind, count in found:
            suffix = f"-{kind}" if len(found) > 1 else ""
            yield NodeFacts(where=gres.where, name=name + suffix, gpu=kind or "gpu", devices=count)


def _hosts(hosts: Node) -> list[str]:
    if hosts.text() in ("(null)", "None"):
        raise hosts.error("the job has no nodes yet", "a job that runs")
    try:
        return expand(hosts.text())
    except InputError as error:
        raise hosts.error(error.what, error.hint) from error


def _gpus(gres: Node) -> Iterator[tuple[str, int]]:
    """Type (empty where none is named) and number of the GPUs of a list of resources."""
    for entry in re.split(r",(?![^(]*\))", gres.text()):
        plain = re.sub(r"\(.*?\)", "", entry).strip()
        head, *parts = re.split(r"[:=]", re.sub(r"^gres[/:]", "", plain, flags=re.IGNORECASE))
        if head.lower() != "gpu":
            continue
        if not parts:
            yield "", 1
            continue
        *kind, count = parts
        if not count.isdecimal():
            kind, count = parts, "1"
        if len(kind) > 1 or not all(kind) or not _GRES.match(head):
            raise gres.error(f"cannot read the resource {entry!r}", "gpu:a100:4")
        if int(count):
            yield (kind[0] if kind else ""), int(count)
