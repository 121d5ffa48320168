"""What the runtime asks of a model; a new model is one subclass (docs/adapters.md).

A subclass builds its VAE and transformer and says how to ``encode`` pixels and ``predict`` from
tokens. Sequence parallelism is on its side of the seam: ``predict`` gets this rank's tokens only,
must add positions for exactly these (``sequence_parallel.own_tokens()``), and must call
``sequence_parallel.attention`` for self-attention, or ``joint_attention`` where text tokens take
part in it. All else happens once per token.

Shape suffixes: B clips, n tokens of this rank, P latent values of a token, L text tokens, D their
features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from arachne_opt.errors import RunError
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import Window, active_window
from arachne_opt.workload import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseBatch:
    """This rank's share of a micro-batch.

    Args:
        shape: of the clips, in pixels.
        clean: latents of this rank's tokens (B, n, P).
        noise: the same of the noise.
        timesteps: time of each clip in [0, 1): 0 is the clean clip.
        text: text embeddings (B, L, D), the same on every rank of the group.
        text_lengths: text tokens of each clip that are no padding, at least 1.
        first_frame: latents of the first frame for this rank's tokens (B, n, P), for models that
            start from an image.
        extras: what the model names in ``ModelConfig.extras``, one row per clip.
    """

    shape: Shape
    clean: Tensor
    noise: Tensor
    timesteps: Tensor
    text: Tensor
    text_lengths: Tensor
    first_frame: Tensor | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)


class VideoAdapter(ABC):
    """A frozen VAE and a transformer in training.

    Attributes:
        config: sizes that decide tokens, degrees and tiles.
        vae: the module that encodes.
        transformer: the module whose parameters are trained.
        device: where both live.
        text_encoder: made when the first text is encoded, where the model has one.
    """

    config: ModelConfig
    vae: nn.Module
    transformer: nn.Module
    device: torch.device
    text_encoder: nn.Module | None = None

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        """Sets sizes and device; a subclass makes its modules, the same on every rank."""
        self.config, self.device = choice.config(), device

    @abstractmethod
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents (B, C, T, H, W) of pixels in [-1, 1], not random; pixels of one tile.

        A model that starts from an image gives the latents of its first frame, followed by
        nothing, as further channels.
        """

    def encode_text(self, caption: str) -> Mapping[str, Tensor]:
        """``text`` (tokens, D) of a caption and, where the model has such an extra, ``pooled``.

        Raises:
            RunError: the model has no text encoder.
        """
        raise RunError(f"{type(self).__name__} has no text encoder")

    @abstractmethod
    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """What the model predicts for this rank's tokens (B, n, P), from noisy latents."""

    def mix(self, batch: DenoiseBatch) -> tuple[Tensor, Tensor]:
        """Noisy latents and what is to be predicted from them: by default that of flow matching.

        The way leads straight from the clean clip to noise, at the velocity noise minus clean.
        """
        time = batch.timesteps.view(-1, 1, 1)
        return (1 - time) * batch.clean + time * batch.noise, batch.noise - batch.clean

    def denoise_loss(self, batch: DenoiseBatch) -> Tensor:
        """Sum of squared errors per clip over this rank's tokens."""
        noisy, wanted = self.mix(batch)
        error = self.predict(noisy, batch).float() - wanted
        return error.square().sum(dim=(1, 2))

    def set_checkpointing(self, enabled: bool) -> None:
        """Keeps only the inputs of the blocks and computes the rest again, or no longer.

        Raises:
            RunError: the model cannot.
        """
        if enabled:
            raise RunError(f"{type(self).__name__} cannot compute its activations again")

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
