"""Pipeline plans as arguments of Megatron-LM.

Arguments and the layout's syntax are those of NVIDIA/Megatron-LM (megatron/training/arguments.py,
docs of the custom pipeline layout): ``E`` embedding, ``t`` block, ``L`` loss with the output layer,
``|`` between stages, ``x*n`` and ``(…)*n`` for repetition.
"""

from __future__ import annotations

import shlex
from itertools import groupby

from arachne_opt.exporters.grid import Abilities, Grid, even_blocks
from arachne_opt.exporters.text import ExportedText, heading, lost_places

ABILITIES = Abilities(trainer="Megatron-LM")


def export(grid: Grid, *, sequence_length: int, source: str = "") -> ExportedText:
    """A shell fragment that sets the array ``ARACHNE_ARGS``."""
    lines = [f"# {line}" for line in heading(grid, "Megatron-LM", source)]
    lines.append("ARACHNE_ARGS=(")
    for name, value in arguments(grid):
        lines.append(f"  {name} {shlex.quote(value)}" if value else f"  {name}")
    lines.append(f"  --num-layers {grid.blocks}")
    lines.append(f"  --seq-length {sequence_length}")
    lines.append(")")
    return ExportedText(text="\n".join(lines) + "\n", suffix=".sh", lost=lost_places(grid))


def arguments(grid: Grid) -> list[tuple[str, str]]:
    """Names and values; an empty value for a switch."""
    found = [
        ("--tensor-model-parallel-size", str(grid.tp)),
        ("--pipeline-model-parallel-size", str(grid.pp)),
        ("--micro-batch-size", str(grid.microbatch)),
        ("--global-batch-size", str(grid.global_batch)),
    ]
    if grid.pp > 1 and grid.cuts != even_blocks(grid.rows, grid.pp):
        found.insert(2, ("--pipeline-model-parallel-layout", layout(grid)))
    if grid.ep > 1:
        found.append(("--expert-model-parallel-size", str(grid.ep)))
    if grid.recompute:
        found += [
            ("--recompute-granularity", "full"),
            ("--recompute-method", "uniform"),
            ("--recompute-num-layers", "1"),
        ]
    if grid.zero1:
        found.append(("--use-distributed-optimizer", ""))
    return found


def layout(grid: Grid) -> str:
    """The stages as a text for ``--pipeline-model-parallel-layout``."""
    stages = [_stage(grid, i) for i in range(grid.pp)]
    parts = []
    for text, run in groupby(stages[:-1]):
        count = len(list(run))
        parts.append(f"({text}|)*{count}" if count > 1 else f"{text}|")
    return "".join(parts) + stages[-1]


def _stage(grid: Grid, number: int) -> str:
    blocks = grid.blocks_of(number)
    inner = "" if blocks == 0 else "t" if blocks == 1 else f"t*{blocks}"
    return f"{'E' if number == 0 else ''}{inner}{'L' if number == grid.pp - 1 else ''}"
