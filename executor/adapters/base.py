"""What the runtime asks of a model; a new model is one subclass.

A subclass builds its VAE and transformer and says how to ``encode`` pixels and ``predict`` from
tokens. Sequence parallelism is on its side of the seam: ``predict`` gets this rank's tokens only,
must add positions for exactly these (``active_window().own``), and must call
``sequence_parallel.attention`` for self-attention. All else happens once per token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from arachne_opt.errors import RunError
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.sequence_parallel import Window, active_window
from arachne_opt.workload import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseBatch:
    """This rank's share of a micro-batch.

    Args:
        shape: of the clips, in pixels.
        clean: latents of this rank's tokens (B, n, P).
        noise: the same of the noise.
        timesteps: time of each clip in [0, 1).
        text: text embeddings (B, length, features).
    """

    shape: Shape
    clean: Tensor
    noise: Tensor
    timesteps: Tensor
    text: Tensor


class VideoAdapter(ABC):
    """A frozen VAE and a transformer in training.

    Attributes:
        config: sizes that decide tokens, degrees and tiles.
        vae: the module that encodes.
        transformer: the module whose parameters are trained.
        device: where both live.
    """

    config: ModelConfig
    vae: nn.Module
    transformer: nn.Module
    device: torch.device

    @abstractmethod
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents (B, C, T, H, W) of pixels in [-1, 1], not random; pixels of one tile."""

    @abstractmethod
    def predict(
        self, noisy_BnP: Tensor, timesteps_B: Tensor, text_BLD: Tensor, shape: Shape
    ) -> Tensor:
        """Predicted velocity (noise minus clean) of this rank's tokens (B, n, P)."""

    def denoise_loss(self, batch: DenoiseBatch) -> Tensor:
        """Sum of squared errors per clip over this rank's tokens, for flow matching.

        A model that is trained to predict something else overrides this method.
        """
        time = batch.timesteps.view(-1, 1, 1)
        noisy = (1 - time) * batch.clean + time * batch.noise
        predicted = self.predict(noisy, batch.timesteps, batch.text, batch.shape)
        error = predicted.float() - (batch.noise - batch.clean)
        return error.square().sum(dim=(1, 2))

    def window(self, shape: Shape) -> Window:
        """The active window, or all tokens of a clip where none is active.

        Raises:
            RunError: the active window is for another number of tokens.
        """
        tokens = self.config.token_count(shape)
        window = active_window() or Window(counts=(tokens,))
        if sum(window.counts) != tokens:
            raise RunError(f"clips of {shape} have {tokens} tokens, not {sum(window.counts)}")
        return window
