"""Pipeline plans as a configuration of Hugging Face accelerate, which starts Megatron-LM.

Keys are those of huggingface/accelerate's ``megatron_lm_config``. It knows no layout of its own:
blocks must divide evenly, with the embedding in the first and the head in the last stage. Its
switch for recomputation is that of attention alone (selective), which no plan of ours asks for.
"""

from __future__ import annotations

import json

from arachne_opt.exporters.grid import Abilities, Grid, even_blocks
from arachne_opt.exporters.rank_order import hosts_of
from arachne_opt.exporters.text import ExportedText, heading, lost_places

ABILITIES = Abilities(trainer="accelerate", cuts=even_blocks, experts=False, recompute=False)


def export(grid: Grid, *, sequence_length: int, source: str = "") -> ExportedText:
    """A configuration file in YAML."""
    del sequence_length  # the script sets it
    flags = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MEGATRON_LM",
        "main_training_function": "main",
        "num_machines": len(hosts_of(grid)),
        "num_processes": grid.world_size,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    megatron = {
        "megatron_lm_tp_degree": grid.tp,
        "megatron_lm_pp_degree": grid.pp,
        "megatron_lm_num_micro_batches": grid.microbatches,
        "megatron_lm_recompute_activations": False,
        "megatron_lm_sequence_parallelism": False,
        "megatron_lm_use_distributed_optimizer": grid.zero1,
    }
    lines = [f"# {line}" for line in heading(grid, "accelerate", source)]
    lines.append(f"# the script's data loader gives {grid.microbatch} samples a micro-batch")
    # Scalars of JSON are scalars of YAML.
    lines += [f"{key}: {json.dumps(value)}" for key, value in flags.items()]
    lines.append("megatron_lm_config:")
    lines += [f"  {key}: {json.dumps(value)}" for key, value in megatron.items()]
    return ExportedText(text="\n".join(lines) + "\n", suffix=".yaml", lost=lost_places(grid))
