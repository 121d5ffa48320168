"""The node that this program runs on, from ``nvidia-smi`` or else from torch."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence

from arachne_opt.errors import InputError
from arachne_opt.importers.cluster_facts import (
    ClusterOptions,
    ImportedCluster,
    NodeFacts,
    cluster_of,
)
from arachne_opt.importers.nvidia_smi import read_node
from arachne_opt.importers.nvidia_topology import read_topology

QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
_PATIENCE_S = 30

# Runs a command; None where it cannot be run or fails.
Runner = Callable[[Sequence[str]], str | None]


def detect(options: ClusterOptions, *, run: Runner | None = None) -> ImportedCluster:
    """The cluster of this node alone, or of equal ones.

    Raises:
        InputError: there is no GPU.
    """
    execute = run or _output
    name = socket.gethostname().split(".")[0] or "this-host"
    notes: list[str] = []
    query = execute(QUERY)
    if query is not None:
        matrix = execute(TOPOLOGY)
        topology = read_topology(matrix, "nvidia-smi topo -m") if matrix else None
        facts, more = read_node(query, "nvidia-smi", name, topology)
        notes += more
    else:
        found = _from_torch(name)
        if found is None:
            what = "there is no GPU here: nvidia-smi does not run and torch sees none"
            raise InputError(what, where=name, hint="a shorthand such as CPU:2 for tests")
        facts = found
        notes.append("nvidia-smi does not run: the GPUs are those that torch sees")
    return cluster_of([facts], options, notes, where=name)


def _output(command: Sequence[str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _from_torch(name: str) -> NodeFacts | None:
    # Late: an import of torch takes seconds.
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(0)
    return NodeFacts(
        where="torch",
        name=name,
        gpu=properties.name,
        devices=torch.cuda.device_count(),
        memory_bytes=properties.total_memory,
    )
