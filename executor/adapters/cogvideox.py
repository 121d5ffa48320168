"""CogVideoX from diffusers: text tokens join the video tokens, and v-prediction instead of flow."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from arachne_opt.executor.adapters.base import DenoiseBatch
from arachne_opt.executor.adapters.diffusers_model import (
    REAL_WIDTH,
    TRAIN_TIMESTEPS,
    DiffusersAdapter,
    channels_last,
    keep_own,
    kl_vae_arguments,
)
from arachne_opt.executor.adapters.text import TextModel
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import joint_attention, own_tokens

# What the schedulers of the published checkpoints have in common.
_SCHEDULER = {"prediction_type": "v_prediction", "rescale_betas_zero_snr": True}


class CogVideoXAdapter(DiffusersAdapter):
    """AutoencoderKLCogVideoX and CogVideoXTransformer3DModel, text to video, releases 1.0."""

    vae_class = "AutoencoderKLCogVideoX"
    transformer_class = "CogVideoXTransformer3DModel"

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        super().__init__(choice, device)
        self._kept_share = _scheduler(choice.checkpoint).alphas_cumprod.to(device).float()

    @torch.no_grad()
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents in the transformer's scale: the mode, so that nothing is random."""
        latents = self.vae.encode(pixels_BCFHW).latent_dist.mode()
        factor = self.vae.config.scaling_factor
        inverted = self.vae.config.invert_scale_latents
        scaled: Tensor = latents / factor if inverted else latents * factor
        return scaled

    def encode_text(self, caption: str) -> dict[str, Tensor]:
        """The last states of T5, padding included: the published model attends to all of them."""
        if self.text_encoder is None:
            encoder = TextModel(self.choice, "T5EncoderModel", self.config.text_dim, masked=False)
            self.text_encoder = encoder.to(self.device)
        given, _ = self.text_encoder(caption, self.config.text_length)
        return {"text": given.last_hidden_state[0]}

    def mix(self, batch: DenoiseBatch) -> tuple[Tensor, Tensor]:
        """Noisy latents of a variance-preserving path, and v (Salimans and Ho, arXiv 2202.00512).

        Squared errors of v are those of the clean latents over 1 minus the kept share, the
        weights of the published training.
        """
        kept = self._kept_share[self.step_of(batch)].view(-1, 1, 1)
        clean, noise = batch.clean, batch.noise
        noisy = kept.sqrt() * clean + (1 - kept).sqrt() * noise
        return noisy, kept.sqrt() * noise - (1 - kept).sqrt() * clean

    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Predicted v of this rank's tokens."""
        return channels_last(super().predict(noisy_BnP, batch), self.config.latent_channels)

    @staticmethod
    def step_of(batch: DenoiseBatch) -> Tensor:
        """The discrete time of each clip."""
        return (batch.timesteps * TRAIN_TIMESTEPS).long()

    def _forward(self, latents_BCTHW: Tensor, batch: DenoiseBatch) -> None:
        self.transformer(
            latents_BCTHW.transpose(1, 2),
            batch.text,
            self.step_of(batch),
            image_rotary_emb=self._rope(batch) if self.config.rotary else None,
            return_dict=False,
        )

    def _rope(self, batch: DenoiseBatch) -> tuple[Tensor, Tensor]:
        """Angles of this rank's tokens.

        Positions are those of the grid of the published training, into which the clip's own grid
        is fitted without distortion.
        """
        # diffusers' own pipeline cannot be imported without transformers.
        from diffusers.models.embeddings import get_3d_rotary_pos_embed

        frames, rows, columns = self.config.grid(batch.shape)
        sizes, patch = self.transformer.config, self.config.patch[1]
        base = sizes.sample_height // patch, sizes.sample_width // patch
        cos, sin = get_3d_rotary_pos_embed(
            embed_dim=self.config.head_dim,
            crops_coords=fitted_region((rows, columns), base),
            grid_size=(rows, columns),
            temporal_size=frames,
            device=self.device,
        )
        return cos[own_tokens()], sin[own_tokens()]

    def _install(self) -> None:
        for block in self.transformer.transformer_blocks:
            block.attn1.set_processor(_JointAttention(self.config.text_length))
        first = self.transformer.transformer_blocks[0]
        first.register_forward_pre_hook(partial(keep_own, joint=True), with_kwargs=True)

    @staticmethod
    def vae_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of AutoencoderKLCogVideoX."""
        return kl_vae_arguments(config, "CogVideoX")

    @staticmethod
    def transformer_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of CogVideoXTransformer3DModel."""
        return {
            "num_attention_heads": config.heads,
            "attention_head_dim": config.head_dim,
            "in_channels": config.latent_channels,
            "out_channels": config.latent_channels,
            "time_embed_dim": 512 if config.width >= REAL_WIDTH else 32,
            "text_embed_dim": config.text_dim,
            "max_text_seq_length": config.text_length,
            "num_layers": config.layers,
            "patch_size": config.patch[1],
            "temporal_compression_ratio": config.temporal_factor,
            "use_rotary_positional_embeddings": config.rotary,
        }


class _JointAttention:
    """Attention processor of diffusers' protocol over video and text tokens of the group.

    Args:
        text_length: text tokens of the whole group.
    """

    def __init__(self, text_length: int) -> None:
        self._text_length = text_length

    def __call__(
        self,
        attn: Any,  # noqa: ANN401 - a class of an optional package
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        image_rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Video and text tokens after attention."""
        assert attention_mask is None  # the model never masks
        video = hidden_states.shape[1]
        tokens = torch.cat((hidden_states, encoder_hidden_states), dim=1)
        query, key, value = (
            project(tokens).unflatten(2, (attn.heads, -1))
            for project in (attn.to_q, attn.to_k, attn.to_v)
        )
        query, key = attn.norm_q(query), attn.norm_k(key)
        if image_rotary_emb is not None:
            query = rotate_video(query, image_rotary_emb, video)
            key = rotate_video(key, image_rotary_emb, video)
        result = joint_attention(query, key, value, text=self._text_length).flatten(2, 3)
        result = attn.to_out[1](attn.to_out[0](result))
        return result[:, :video], result[:, video:]


def fitted_region(
    grid: tuple[int, int], base: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """First and last corner of a grid, scaled to touch the edges of a base grid, in its middle."""
    scale = min(base[0] / grid[0], base[1] / grid[1])
    size = [min(whole, round(scale * edge)) for edge, whole in zip(grid, base, strict=True)]
    top, left = (round((whole - edge) / 2) for edge, whole in zip(size, base, strict=True))
    return (top, left), (top + size[0], left + size[1])


def rotate_video(x_BnHD: Tensor, rope: tuple[Tensor, Tensor], video: int) -> Tensor:
    """Turns the first ``video`` tokens by their positions; text tokens have none."""
    from diffusers.models.embeddings import apply_rotary_emb

    turned = apply_rotary_emb(x_BnHD[:, :video], rope, sequence_dim=1)
    return torch.cat((turned, x_BnHD[:, video:]), dim=1)


def _scheduler(checkpoint: str) -> Any:  # noqa: ANN401 - a class of an optional package
    from diffusers import CogVideoXDDIMScheduler

    folder = Path(checkpoint) / "scheduler"
    if checkpoint and folder.is_dir():
        return CogVideoXDDIMScheduler.from_pretrained(str(folder), local_files_only=True)
    return CogVideoXDDIMScheduler(**_SCHEDULER)
