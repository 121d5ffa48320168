"""Ranks that srun starts, as torchrun would have named them; knows no torch."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

_NAMES = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}


def take_rank_from_slurm(environment: MutableMapping[str, str] | None = None) -> None:
    """Sets torch's variables from Slurm's where torchrun has not set them.

    ``MASTER_ADDR`` and ``MASTER_PORT`` come with the command.
    """
    variables = os.environ if environment is None else environment
    if "RANK" in variables or "SLURM_PROCID" not in variables:
        return
    for name, theirs in _NAMES.items():
        variables[name] = variables[theirs]
    variables["LOCAL_WORLD_SIZE"] = str(
        _tasks_of_node(variables["SLURM_TASKS_PER_NODE"], int(variables["SLURM_NODEID"]))
    )


def _tasks_of_node(text: str, node: int) -> int:
    """Reads Slurm's short form, such as ``4(x2),2``: 4 on nodes 0 and 1, 2 on node 2."""
    at = 0
    for part in text.split(","):
        count, _, times = part.partition("(x")
        at += int(times.rstrip(")")) if times else 1
        if node < at:
            return int(count)
    return 1
