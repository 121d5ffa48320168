"""Models that the runtime can train: ``build_adapter`` makes the one that a job asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arachne_opt.executor.model_config import ModelChoice

if TYPE_CHECKING:
    import torch

    from arachne_opt.executor.adapters.base import VideoAdapter


def build_adapter(choice: ModelChoice, device: torch.device) -> VideoAdapter:
    """The model, equal on every rank: its weights come from the seed or the checkpoint.

    Raises:
        MissingDependencyError: the model needs an extra that is not installed.
    """
    config = choice.config()
    if config.family == "wan":
        from arachne_opt.executor.adapters.wan import WanAdapter

        return WanAdapter(choice, device)
    from arachne_opt.executor.adapters.toy import ToyAdapter

    return ToyAdapter(config, choice.seed, device)
