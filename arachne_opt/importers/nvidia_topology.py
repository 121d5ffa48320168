"""NIC groups, NUMA domains and the link of a node from the matrix of ``nvidia-smi topo -m``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from arachne_opt.cluster import Link
from arachne_opt.errors import InputError
from arachne_opt.importers.cluster_facts import PCIE, NodeFacts

# Nearest first: one PCIe switch, several, a host bridge, a NUMA domain, between domains.
_LEVELS = ("PIX", "PXB", "PHB", "NODE", "SYS")
_LINK = re.compile(r"NV(\d+)")
_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|mlx\w+")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
# One NVLink of generations 2 to 4, one direction; NVIDIA's data sheets of V100, A100 and H100.
NVLINK_BYTES_PER_S = 25_000_000_000
_NVLINK_LATENCY_US = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What a matrix says of a node's GPUs.

    Args:
        nics: NIC group of every GPU.
        numa: NUMA domain of every NIC group.
        nvlinks: fewest NVLinks between two GPUs; 0 where a pair has none.
    """

    where: str
    nics: tuple[int, ...]
    numa: tuple[int, ...]
    nvlinks: int

    def applied(self, facts: NodeFacts) -> NodeFacts:
        """A node with these groups; its link only where the data sheet would be wrong.

        Raises:
            InputError: the matrix is that of another node.
        """
        if len(self.nics) != facts.devices:
            what = f"the matrix has {len(self.nics)} GPUs, the node has {facts.devices}"
            raise InputError(what, where=self.where, hint="the topology of the same node")
        link = PCIE
        if self.nvlinks:
            bandwidth = self.nvlinks * NVLINK_BYTES_PER_S
            link = Link(bandwidth_bytes_per_s=bandwidth, latency_us=_NVLINK_LATENCY_US)
        alone = facts.devices == 1
        return replace(facts, nics=self.nics, numa=self.numa, link=None if alone else link)


def read_topology(text: str, file: str) -> Topology:
    """The topology of a matrix.

    Raises:
        InputError: no matrix, or a broken one; says which line.
    """
    lines = [_ESCAPE.sub("", line) for line in text.split("\n")]
    head = next((n for n, line in enumerate(lines) if line.split()[:1] == ["GPU0"]), None)
    if head is None:
        what = "no matrix that begins with GPU0"
        raise InputError(what, where=f"{file}:1", hint="the output of nvidia-smi topo -m")
    columns = [name for name in lines[head].split() if _DEVICE.fullmatch(name)]
    rows: list[list[str]] = []
    domains: list[int] = []
    gpus = [i for i, name in enumerate(columns) if re.fullmatch(r"GPU\d+", name)]
    for number in range(head + 1, len(lines)):
        if len(rows) == len(gpus):
            break
        where = f"{file}:{number + 1}"
        name, *cells = lines[number].split() or [""]
        if name != columns[gpus[len(rows)]]:
            what = f"expected the row of {columns[gpus[len(rows)]]}, found {name or 'nothing'!r}"
            raise InputError(what, where=where, hint="the whole matrix, unchanged")
        rows.append(_row(cells, len(columns), where))
        domains.append(_domain(cells[len(columns) :]))
    if len(rows) < len(gpus):
        what = f"{len(rows)} rows for {len(gpus)} GPUs"
        raise InputError(what, where=f"{file}:{len(lines)}", hint="the whole matrix")
    return _topology(columns, rows, domains, gpus, f"{file}:{head + 1}")


def _row(cells: Sequence[str], columns: int, where: str) -> list[str]:
    row = list(cells[:columns])
    if len(row) < columns:
        what = f"{len(row)} of {columns} cells"
        raise InputError(what, where=where, hint="the whole matrix, unchanged")
    for cell in row:
        if not _CELL.fullmatch(cell):
            what = f"unknown connection {cell!r}"
            raise InputError(what, where=where, hint="X, NV#, PIX, PXB, PHB, NODE or SYS")
    return row


def _domain(rest: Sequence[str]) -> int:
    """The NUMA affinity behind the CPU affinity; 0 where it is not told."""
    return int(rest[1]) if len(rest) > 1 and rest[1].isdecimal() else 0


def _topology(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    domains: Sequence[int],
    gpus: Sequence[int],
    where: str,
) -> Topology:
    """GPUs whose nearest NICs are the same share a group; without NICs, those of a NUMA domain."""
    others = [i for i in range(len(columns)) if i not in gpus]
    groups: dict[tuple[int, ...], int] = {}
    nics: list[int] = []
    numa: list[int] = []
    for row, domain in zip(rows, domains, strict=True):
        nearest = min((_LEVELS.index(row[i]) for i in others if row[i] in _LEVELS), default=None)
        near = tuple(i for i in others if nearest is not None and row[i] == _LEVELS[nearest])
        key = near or (-1, domain)
        if key not in groups:
            groups[key] = len(groups)
            numa.append(domain)
        nics.append(groups[key])
    pairs = [rows[a][gpus[b]] for a in range(len(gpus)) for b in range(len(gpus)) if a != b]
    links = [int(m[1]) if (m := _LINK.fullmatch(cell)) else 0 for cell in pairs]
    return Topology(where=where, nics=tuple(nics), numa=tuple(numa), nvlinks=min(links, default=0))
