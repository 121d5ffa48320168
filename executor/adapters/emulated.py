"""A model that computes nothing: a few parameters, so that gradients travel as they would."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from arachne_opt.errors import RunError
from arachne_opt.executor.adapters.base import DenoiseBatch, VideoAdapter
from arachne_opt.executor.model_config import ModelChoice

_WIDTH = 64


class EmulatedAdapter(VideoAdapter):
    """Stands in for a model while its plan is rehearsed."""

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        super().__init__(choice, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(choice.seed)
            self.transformer = nn.Linear(_WIDTH, _WIDTH).to(device)
        self.vae = nn.Identity()

    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Never called: an emulated task sleeps."""
        raise RunError("an emulated model encodes nothing")

    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Never called: an emulated task sleeps."""
        raise RunError("an emulated model predicts nothing")
