"""Nodes from ``nvidia-smi``: its CSV queries and its XML (``-q -x``), with ``topo -m`` beside them.

``nvidia-smi --query-gpu=index,name,memory.total --format=csv`` and ``nvidia-smi -q -x`` on a node
each give a file; the file's name is taken as the node's.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.parsers import expat

from arachne_opt.errors import InputError
from arachne_opt.importers.cluster_facts import NodeFacts, few
from arachne_opt.importers.node import Node, read_text
from arachne_opt.importers.nvidia_topology import Topology

_MEMORY = re.compile(r"\s*(\d+)\s*(?:MiB)?\s*")
_MIB = 2**20
# Elements in XML by the names that the queries give them.
_WANTED = {
    ("gpu", "product_name"): "name",
    ("fb_memory_usage", "total"): "memory.total",
    ("mig_mode", "current_mig"): "mig.mode.current",
}


def recognise(source: Path) -> str:
    """Why a file looks like such an output, empty where it does not."""
    if not source.is_file():
        return ""
    head = read_text(source).lstrip()[:4000]
    if "<nvidia_smi_log>" in head:
        return "an nvidia_smi_log in XML"
    return "a table of GPUs with name" if _is_query(head.split("\n", 1)[0]) else ""


def read_node(
    text: str, file: str, name: str, topology: Topology | None = None
) -> tuple[NodeFacts, tuple[str, ...]]:
    """The node of one output, and what else to know.

    Raises:
        InputError: the output is broken, has no GPU, or its GPUs differ.
    """
    gpus = _from_xml(text, file) if "<nvidia_smi_log>" in text else _from_csv(text, file)
    if not gpus:
        raise InputError("no GPU is listed", where=f"{file}:1", hint="the output of a GPU node")
    first = gpus[0]
    for gpu in gpus[1:]:
        if gpu.get("name").text() != first.get("name").text():
            what = f"{gpu.get('name').text()} beside {first.get('name').text()} in one node"
            raise gpu.error(what, "one file for the GPUs of each type")
    notes = []
    mig = [g.find("mig.mode.current") for g in gpus]
    if on := [m.where for m in mig if m is not None and m.text().lower() == "enabled"]:
        notes.append(f"MIG is on ({few(on)}): parts of a GPU are not planned, only whole ones")
    memory = first.find("memory.total")
    facts = NodeFacts(
        where=first.where,
        name=name,
        gpu=first.get("name").text(),
        devices=len(gpus),
        memory_bytes=_bytes(memory) if memory else None,
    )
    return (topology.applied(facts) if topology else facts), tuple(notes)


def _is_query(line: str) -> bool:
    names = {part.strip().split(" ")[0] for part in line.split(",")}
    return "name" in names and bool(names & {"index", "memory.total", "uuid", "pci.bus_id"})


def _from_csv(text: str, file: str) -> list[Node]:
    """One node of the file per GPU; columns are named by the query."""
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or not _is_query(lines[0][1]):
        what = "the first line does not name the columns index and name"
        hint = "nvidia-smi --query-gpu=index,name,memory.total --format=csv"
        raise InputError(what, where=f"{file}:{lines[0][0] if lines else 1}", hint=hint)
    header = [part.strip().split(" ")[0] for part in lines[0][1].split(",")]
    gpus = []
    for number, line in lines[1:]:
        cells = [part.strip() for part in line.split(",")]
        if len(cells) != len(header):
            what = f"{len(cells)} fields, the header has {len(header)}: {line.strip()[:80]!r}"
            raise InputError(what, where=f"{file}:{number}", hint="the whole output, unchanged")
        values = dict(zip(header, cells, strict=True))
        gpus.append(Node(values, file, {(): number}, loose=True))
    return gpus


def _from_xml(text: str, file: str) -> list[Node]:
    parser, found = expat.ParserCreate(), _Gpus(file)
    parser.buffer_text = True

    def start(tag: str, _: object) -> None:
        found.start(tag, parser.CurrentLineNumber)

    parser.StartElementHandler = start
    parser.EndElementHandler = found.end
    parser.CharacterDataHandler = found.text
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        what = f"no valid XML: {expat.ErrorString(error.code)}"
        hint = "the whole output of nvidia-smi -q -x"
        raise InputError(what, where=f"{file}:{error.lineno}", hint=hint) from error
    return found.gpus


class _Gpus:
    """Picks what we need out of the elements of each GPU, under the names of the queries."""

    def __init__(self, file: str) -> None:
        self.gpus: list[Node] = []
        self._file = file
        self._open: list[tuple[str, int]] = []
        self._text = ""
        self._values: dict[str, str] = {}
        self._lines: dict[tuple[str | int, ...], int] = {}

    def start(self, tag: str, line: int) -> None:
        if tag == "gpu":
            self._values, self._lines = {}, {(): line}
        self._open.append((tag, line))
        self._text = ""

    def text(self, data: str) -> None:
        self._text += data

    def end(self, tag: str) -> None:
        _, line = self._open.pop()
        outer = self._open[-1][0] if self._open else ""
        name = _WANTED.get((outer, tag))
        if name:
            self._values[name] = self._text.strip()
            self._lines[name,] = line
        if tag == "gpu":
            self.gpus.append(Node(self._values, self._file, self._lines, loose=True))
        self._text = ""


def _bytes(memory: Node) -> int:
    match = _MEMORY.fullmatch(memory.text())
    if match is None:
        raise memory.error(f"cannot read the memory {memory.text()!r}", "81920 MiB")
    return int(match[1]) * _MIB
