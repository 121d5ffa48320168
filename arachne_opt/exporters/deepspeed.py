"""Pipeline plans as a configuration of DeepSpeed and the arguments of its ``PipelineModule``.

Keys are those of deepspeedai/DeepSpeed's configuration. A ``PipelineModule`` that is given a layer
per row and ``partition_method="uniform"`` cuts rows evenly; the first stages take one row more.
"""

from __future__ import annotations

import json

from arachne_opt.exporters.grid import Abilities, Grid, even_rows
from arachne_opt.exporters.text import ExportedText, heading, lost_places

ABILITIES = Abilities(trainer="DeepSpeed", cuts=even_rows, experts=False)


def export(grid: Grid, *, sequence_length: int, source: str = "") -> ExportedText:
    """JSON with the configuration, and under ``pipeline_module`` what the script has to pass."""
    del sequence_length  # the script sets it
    value = {
        "arachne": heading(grid, "DeepSpeed", source),
        "config": {
            "train_batch_size": grid.global_batch,
            "train_micro_batch_size_per_gpu": grid.microbatch,
            "gradient_accumulation_steps": grid.microbatches,
            "zero_optimization": {"stage": 1 if grid.zero1 else 0},
        },
        "pipeline_module": {
            "topology": {"pipe": grid.pp, "data": grid.dp, "model": grid.tp},
            "partition_method": "uniform",
            "activation_checkpoint_interval": 1 if grid.recompute else 0,
        },
    }
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    return ExportedText(text=text, suffix=".json", lost=lost_places(grid))
