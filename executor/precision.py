"""bf16 for the forward and backward of the transformer; weights and gradients stay in fp32."""

from __future__ import annotations

from typing import Any

import torch

from arachne_opt.executor.adapters.base import VideoAdapter


def run_in_bf16(adapter: VideoAdapter) -> None:
    """Lets the transformer's matrix products run in bf16, with fp32 weights behind them.

    Gradients arrive at the weights in fp32, so they are added up and summed over the ranks in it.
    """
    transformer: Any = adapter.transformer
    inside = transformer.forward
    kind = adapter.device.type

    def forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any model's signature
        with torch.autocast(kind, torch.bfloat16):
            return inside(*args, **kwargs)

    transformer.forward = forward
