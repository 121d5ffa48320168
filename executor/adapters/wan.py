"""Wan from diffusers, text to video and image to video."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from arachne_opt.errors import InputError
from arachne_opt.executor.adapters.base import DenoiseBatch
from arachne_opt.executor.adapters.diffusers_model import (
    REAL_WIDTH,
    TRAIN_TIMESTEPS,
    DiffusersAdapter,
    keep_own,
)
from arachne_opt.executor.adapters.text import TextModel
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import attention, own_tokens


class WanAdapter(DiffusersAdapter):
    """AutoencoderKLWan and WanTransformer3DModel.

    A model that starts from an image sees, beside the noisy latents, a mask that marks the first
    frame, and the latents of a clip that shows this frame and then nothing.
    """

    vae_class = "AutoencoderKLWan"
    transformer_class = "WanTransformer3DModel"

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        super().__init__(choice, device)
        self._latent_mean, self._latent_std = (
            torch.tensor(self.vae.config[key], device=device).view(1, -1, 1, 1, 1)
            for key in ("latents_mean", "latents_std")
        )

    @torch.no_grad()
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents in the transformer's scale: the mode, so that nothing is random."""
        latents = self._scaled(pixels_BCFHW)
        if not self.config.from_image:
            return latents
        first = torch.zeros_like(pixels_BCFHW)
        first[:, :, 0] = pixels_BCFHW[:, :, 0]
        return torch.cat((latents, self._scaled(first)), dim=1)

    def encode_text(self, caption: str) -> dict[str, Tensor]:
        """The last states of UMT5, without the padding."""
        if self.text_encoder is None:
            encoder = TextModel(self.choice, "UMT5EncoderModel", self.config.text_dim)
            self.text_encoder = encoder.to(self.device)
        given, mask = self.text_encoder(caption, self.config.text_length)
        return {"text": given.last_hidden_state[0, : int(mask.sum())]}

    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Predicted velocity of this rank's tokens."""
        if self.config.from_image:
            noisy_BnP = self._with_first_frame(noisy_BnP, batch)
        return super().predict(noisy_BnP, batch)

    def _scaled(self, pixels_BCFHW: Tensor) -> Tensor:
        latents = self.vae.encode(pixels_BCFHW).latent_dist.mode()
        scaled: Tensor = (latents - self._latent_mean) / self._latent_std
        return scaled

    def _with_first_frame(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Channels of each token: noisy latents, mask, latents of the first frame."""
        config = self.config
        assert batch.first_frame is not None  # carried by every model that starts from an image
        whole = config.token_count(batch.shape)
        places = torch.arange(whole, device=self.device)[self.window(batch.shape).own]
        marked = (places < whole // config.grid(batch.shape)[0]).to(noisy_BnP.dtype)
        parts = [
            x.view(*x.shape[:2], -1, config.latent_channels) for x in (noisy_BnP, batch.first_frame)
        ]
        size = (*parts[0].shape[:-1], config.temporal_factor)
        mask = marked.view(1, -1, 1, 1).expand(size)
        return torch.cat((parts[0], mask, parts[1]), dim=-1).flatten(-2)

    def _forward(self, latents_BCTHW: Tensor, batch: DenoiseBatch) -> None:
        image = batch.extras.get("image")
        time = batch.timesteps * TRAIN_TIMESTEPS
        self.transformer(latents_BCTHW, time, batch.text, image, return_dict=False)

    def _install(self) -> None:
        for block in self.transformer.blocks:
            block.attn1.set_processor(_SelfAttention())
        self.transformer.rope.register_forward_hook(_keep_own_rope)
        first = self.transformer.blocks[0]
        first.register_forward_pre_hook(partial(keep_own, joint=False), with_kwargs=True)

    @staticmethod
    def vae_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of AutoencoderKLWan."""
        arguments: dict[str, Any] = {
            "base_dim": config.vae_dim,
            "z_dim": config.latent_channels,
            "num_res_blocks": config.vae_blocks,
            "dim_mult": list(config.vae_multipliers),
        }
        if config.latent_channels != 16:
            # The statistics of the published latents are for 16 channels.
            arguments["latents_mean"] = [0.0] * config.latent_channels
            arguments["latents_std"] = [1.0] * config.latent_channels
        return arguments

    @staticmethod
    def transformer_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of WanTransformer3DModel."""
        mask = config.temporal_factor if config.from_image else 0
        return {
            "patch_size": config.patch,
            "num_attention_heads": config.heads,
            "attention_head_dim": config.head_dim,
            "in_channels": config.carried_channels + mask,
            "out_channels": config.latent_channels,
            "text_dim": config.text_dim,
            "freq_dim": 256 if config.width >= REAL_WIDTH else 32,
            "ffn_dim": config.ffn_dim,
            "num_layers": config.layers,
            "image_dim": config.image_width or None,
            "added_kv_proj_dim": config.width if config.image_width else None,
        }


def _keep_own_rope(
    _module: nn.Module, _args: object, rope: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    cos, sin = rope
    return cos[:, own_tokens()], sin[:, own_tokens()]


class _SelfAttention:
    """Attention processor of diffusers' protocol that exchanges heads over the active window."""

    _attention_backend = None
    _parallel_config = None

    def __call__(
        self,
        attn: Any,  # noqa: ANN401 - a class of an optional package
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        rotary_emb: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """The tokens (B, n, width) after self-attention."""
        if encoder_hidden_states is not None or attention_mask is not None or rotary_emb is None:
            raise InputError("sequence parallelism is for unmasked self-attention with rope")
        query = attn.norm_q(attn.to_q(hidden_states)).unflatten(2, (attn.heads, -1))
        key = attn.norm_k(attn.to_k(hidden_states)).unflatten(2, (attn.heads, -1))
        value = attn.to_v(hidden_states).unflatten(2, (attn.heads, -1))
        result = attention(_rotate(query, rotary_emb), _rotate(key, rotary_emb), value)
        result = attn.to_out[0](result.flatten(2, 3))
        dropped: Tensor = attn.to_out[1](result)
        return dropped


def _rotate(x_BnHD: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Turns pairs of neighbouring features; the tables hold each angle twice."""
    cos, sin = (table[..., ::2] for table in rope)
    even, odd = x_BnHD[..., ::2], x_BnHD[..., 1::2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).type_as(x_BnHD)
