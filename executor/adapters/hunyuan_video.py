"""HunyuanVideo from diffusers: blocks with two streams, then blocks with one, text in all."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from arachne_opt.executor.adapters.base import DenoiseBatch
from arachne_opt.executor.adapters.cogvideox import rotate_video
from arachne_opt.executor.adapters.diffusers_model import (
    TRAIN_TIMESTEPS,
    DiffusersAdapter,
    channels_last,
    keep_own,
    kl_vae_arguments,
)
from arachne_opt.executor.adapters.text import TextModel
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import joint_attention, own_tokens

# The published model was distilled with guidance; training goes on without any.
_NO_GUIDANCE = 1.0

# As published: the states before the last two layers, and the tokens of CLIP.
_LLAMA_STATES = -3
_CLIP_TOKENS = 77


class HunyuanVideoAdapter(DiffusersAdapter):
    """AutoencoderKLHunyuanVideo and HunyuanVideoTransformer3DModel, text to video."""

    vae_class = "AutoencoderKLHunyuanVideo"
    transformer_class = "HunyuanVideoTransformer3DModel"

    @torch.no_grad()
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents in the transformer's scale: the mode, so that nothing is random."""
        latents = self.vae.encode(pixels_BCFHW).latent_dist.mode()
        scaled: Tensor = latents * self.vae.config.scaling_factor
        return scaled

    def encode_text(self, caption: str) -> dict[str, Tensor]:
        """States of Llama, of the caption inside its prompt, and the pooled output of CLIP."""
        if self.text_encoder is None:
            encoder = _TwoEncoders(self.choice, self.config)
            self.text_encoder = encoder.to(self.device)
        found: dict[str, Tensor] = self.text_encoder(caption)
        return found

    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Predicted velocity of this rank's tokens."""
        return channels_last(super().predict(noisy_BnP, batch), self.config.latent_channels)

    def _forward(self, latents_BCTHW: Tensor, batch: DenoiseBatch) -> None:
        length = batch.text.shape[1]
        places = torch.arange(length, device=self.device)
        guided = self.transformer.config.guidance_embeds
        self.transformer(
            latents_BCTHW,
            batch.timesteps * TRAIN_TIMESTEPS,
            batch.text,
            places < batch.text_lengths.unsqueeze(1),
            batch.extras["pooled"],
            torch.full_like(batch.timesteps, _NO_GUIDANCE * TRAIN_TIMESTEPS) if guided else None,
            return_dict=False,
        )

    def _install(self) -> None:
        model = self.transformer
        for block in (*model.transformer_blocks, *model.single_transformer_blocks):
            block.attn.set_processor(_JointAttention(self.config.text_length))
        model.rope.register_forward_hook(_keep_own_rope)
        first = (*model.transformer_blocks, *model.single_transformer_blocks)[0]
        first.register_forward_pre_hook(partial(keep_own, joint=True), with_kwargs=True)

    @staticmethod
    def vae_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of AutoencoderKLHunyuanVideo."""
        spatial = config.spatial_factor
        return {**kl_vae_arguments(config, "HunyuanVideo"), "spatial_compression_ratio": spatial}

    @staticmethod
    def transformer_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of HunyuanVideoTransformer3DModel.

        Of the features of a head, 7/16 each turn by row and column and the rest by frame.
        """
        side = 2 * (7 * config.head_dim // 32)
        return {
            "in_channels": config.latent_channels,
            "out_channels": config.latent_channels,
            "num_attention_heads": config.heads,
            "attention_head_dim": config.head_dim,
            "num_layers": config.layers - config.single_layers,
            "num_single_layers": config.single_layers,
            "mlp_ratio": config.ffn_dim / config.width,
            "patch_size": config.patch[1],
            "patch_size_t": config.patch[0],
            "text_embed_dim": config.text_dim,
            "pooled_projection_dim": config.pooled_width,
            "rope_axes_dim": (config.head_dim - 2 * side, side, side),
        }


class _TwoEncoders(nn.Module):
    """Llama for the tokens of the text, CLIP for the whole of it."""

    def __init__(self, choice: ModelChoice, config: ModelConfig) -> None:
        super().__init__()
        self._length = config.text_length
        self._template, self._skipped = _prompt() if choice.checkpoint else ("{}", 0)
        self.words = TextModel(choice, "LlamaModel", config.text_dim)
        self.whole = TextModel(choice, "CLIPTextModel", config.pooled_width, "_2")

    def forward(self, caption: str) -> dict[str, Tensor]:
        """The tokens of the caption that are no padding, and its pooled embedding."""
        prompt = self._template.format(caption)
        given, mask = self.words(prompt, self._length + self._skipped)
        states = given.hidden_states[_LLAMA_STATES][0, self._skipped : int(mask.sum())]
        pooled, _ = self.whole(caption, _CLIP_TOKENS)
        return {"text": states, "pooled": pooled.pooler_output[0]}


def _prompt() -> tuple[str, int]:
    """The published prompt, and the number of its tokens before the caption."""
    from diffusers.pipelines.hunyuan_video import pipeline_hunyuan_video

    prompt = pipeline_hunyuan_video.DEFAULT_PROMPT_TEMPLATE
    return prompt["template"], prompt["crop_start"]


def _keep_own_rope(
    _module: nn.Module, _args: object, rope: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    cos, sin = rope
    return cos[own_tokens()], sin[own_tokens()]


class _JointAttention:
    """Attention processor of diffusers' protocol over video and text tokens of the group.

    Blocks with two streams project text by weights of its own, blocks with one do not.

    Args:
        text_length: text tokens of the whole group.
    """

    _attention_backend = None
    _parallel_config = None

    def __init__(self, text_length: int) -> None:
        self._text_length = text_length

    def __call__(
        self,
        attn: Any,  # noqa: ANN401 - a class of an optional package
        hidden_states: Tensor,
        encoder_hidden_states: Tensor,
        attention_mask: Tensor,
        image_rotary_emb: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Video and text tokens after attention."""
        video = hidden_states.shape[1]
        query, key, value = _projected(attn, hidden_states, encoder_hidden_states)
        query = rotate_video(query, image_rotary_emb, video)
        key = rotate_video(key, image_rotary_emb, video)
        # The model's mask is for all video tokens, which all count, and then all text tokens.
        whole = self._text_length
        mask = attention_mask[:, 0, 0, -whole:]
        result = joint_attention(query, key, value, text=whole, text_mask_BL=mask).flatten(2, 3)
        hidden_states, encoder_hidden_states = result[:, :video], result[:, video:]
        if getattr(attn, "to_out", None) is not None:
            hidden_states = attn.to_out[1](attn.to_out[0](hidden_states))
        if getattr(attn, "to_add_out", None) is not None:
            encoder_hidden_states = attn.to_add_out(encoder_hidden_states)
        return hidden_states, encoder_hidden_states


def _projected(attn: Any, video: Tensor, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    """Query, key and value of video and text tokens (B, n + l, H, D)."""
    own = (attn.to_q, attn.to_k, attn.to_v)
    norms = (attn.norm_q, attn.norm_k, None)
    if attn.add_q_proj is None:
        query, key, value = _heads(attn, torch.cat((video, text), dim=1), own, norms)
        return query, key, value
    added = (attn.add_q_proj, attn.add_k_proj, attn.add_v_proj)
    added_norms = (attn.norm_added_q, attn.norm_added_k, None)
    parts = zip(
        _heads(attn, video, own, norms), _heads(attn, text, added, added_norms), strict=True
    )
    query, key, value = (torch.cat(pair, dim=1) for pair in parts)
    return query, key, value


def _heads(attn: Any, x: Tensor, projections: Any, norms: Any) -> list[Tensor]:  # noqa: ANN401
    tensors = [project(x).unflatten(2, (attn.heads, -1)) for project in projections]
    return [norm(t) if norm else t for t, norm in zip(tensors, norms, strict=True)]
