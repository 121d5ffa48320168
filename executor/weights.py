"""What each clip weighs in the loss of its iteration; the weights add up to 1."""

from __future__ import annotations

from collections.abc import Collection

from arachne_opt.errors import RunError
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.workload import Iteration, MicroBatch


def clip_weights(
    iteration: Iteration,
    batch: MicroBatch,
    rule: str,
    config: ModelConfig,
    left_out: Collection[str] = (),
) -> tuple[float, ...]:
    """Weights of the clips of a micro-batch: equal shares, or by their tokens.

    Args:
        iteration: all clips that share the weight of 1.
        batch: whose weights are asked for.
        rule: ``clip`` or ``token``.
        config: counts tokens.
        left_out: ids of clips that do not count.

    Raises:
        RunError: no clip is left.
    """

    def weigh(one: MicroBatch) -> int:
        return config.token_count(one.shape) if rule == "token" else 1

    total = sum(
        weigh(one) for one in iteration.micro_batches for c in one.clips if c.id not in left_out
    )
    if total == 0:
        raise RunError("no clip can be read", where=f"iteration {iteration.name}")
    return tuple(0.0 if clip.id in left_out else weigh(batch) / total for clip in batch.clips)
