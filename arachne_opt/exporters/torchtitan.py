"""Pipeline plans as a configuration of torchtitan.

Keys are those of pytorch/torchtitan's job configuration in TOML (2025); versions configured in
Python have records of the same names. Modules are named as its Llama models name them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from arachne_opt.exporters.grid import Abilities, Grid
from arachne_opt.exporters.text import ExportedText, heading, lost_places
from arachne_opt.exporters.toml_text import toml_text

ABILITIES = Abilities(trainer="torchtitan", zero1=False)


def export(grid: Grid, *, sequence_length: int, source: str = "") -> ExportedText:
    """The tables ``parallelism``, ``training`` and ``activation_checkpoint`` in TOML."""
    sharded = grid.ep > 1
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": 1 if sharded else grid.dp,
        "data_parallel_shard_degree": grid.dp if sharded else 1,
        "tensor_parallel_degree": grid.tp,
        "pipeline_parallel_degree": grid.pp,
        "expert_parallel_degree": grid.ep,
    }
    if grid.pp > 1:
        parallelism |= {
            "pipeline_parallel_schedule": "1F1B",
            "pipeline_parallel_microbatch_size": grid.microbatch,
            "module_fqns_per_model_part": modules(grid),
        }
    value = {
        "training": {
            "local_batch_size": grid.microbatch * (grid.microbatches if grid.pp > 1 else 1),
            "global_batch_size": grid.global_batch,
            "seq_len": sequence_length,
        },
        "parallelism": parallelism,
        "activation_checkpoint": {"mode": "full" if grid.recompute else "none"},
    }
    lost = lost_places(grid)
    if sharded:
        text = "parameters are sharded over the replicas (FSDP), which expert degrees need there"
        lost = (*lost, f"{text}: the plan keeps them whole")
    if 1 < grid.pp > grid.microbatches:
        text = f"{grid.microbatches} micro-batches for {grid.pp} stages"
        lost = (*lost, f"{text}: its 1F1B schedule needs at least as many")
    head = heading(grid, "torchtitan", source)
    return ExportedText(text=toml_text(value, head=head), suffix=".toml", lost=lost)


def modules(grid: Grid) -> list[list[str]]:
    """Names of the modules of every stage."""
    parts = []
    for first, end in pairwise(grid.cuts):
        part = ["tok_embeddings"] if first == 0 else []
        part += [f"layers.{row - 1}" for row in range(max(first, 1), min(end, grid.rows - 1))]
        parts.append(part + (["norm", "output"] if end == grid.rows else []))
    return parts
