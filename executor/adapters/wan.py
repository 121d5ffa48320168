"""Wan from diffusers: the real transformer and VAE, with random weights or from a checkpoint.

diffusers' own context parallelism is set up once per model, so its degree cannot change from task
to task. Here three hooks read the active window instead: rope and the first block keep this
rank's tokens, the output projection hands them over before the model restores the full grid.
Patches are embedded one by one, so that tokens of other ranks may be zeros at the model's door.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import attention
from arachne_opt.executor.tokens import unpatchify
from arachne_opt.workload import Shape

_TRAIN_TIMESTEPS = 1000

# The published models, the narrowest of which is this wide, embed time in 256 features.
_REAL_WIDTH = 1536


class WanAdapter(VideoAdapter):
    """AutoencoderKLWan and WanTransformer3DModel, text to video."""

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        self.config, self.device = choice.config(), device
        vae, transformer = _load(choice) if choice.checkpoint else _random(choice, self.config)
        self.vae: Any = vae.requires_grad_(False).eval().to(device)
        self.transformer: Any = transformer.to(device)
        mean, std = (
            torch.tensor(self.vae.config[key], device=device).view(1, -1, 1, 1, 1)
            for key in ("latents_mean", "latents_std")
        )
        self._latent_mean, self._latent_std = mean, std
        self._shape: Shape | None = None
        self._predicted: Tensor | None = None
        self._install()

    @torch.no_grad()
    def encode(self, pixels_BCFHW: Tensor) -> Tensor:
        """Latents in the transformer's scale: the mode, so that nothing is random."""
        latents = self.vae.encode(pixels_BCFHW).latent_dist.mode()
        scaled: Tensor = (latents - self._latent_mean) / self._latent_std
        return scaled

    def predict(
        self, noisy_BnP: Tensor, timesteps_B: Tensor, text_BLD: Tensor, shape: Shape
    ) -> Tensor:
        """Predicted velocity of this rank's tokens, taken at the output projection."""
        full = noisy_BnP.new_zeros(
            noisy_BnP.shape[0], self.config.token_count(shape), noisy_BnP.shape[2]
        )
        full[:, self.window(shape).own] = noisy_BnP
        latents = unpatchify(full, self.config.grid(shape), self.config.patch)
        self._shape = shape
        self.transformer(latents, timesteps_B * _TRAIN_TIMESTEPS, text_BLD, return_dict=False)
        predicted, self._predicted, self._shape = self._predicted, None, None
        assert predicted is not None  # the hook on the output projection ran
        return predicted

    def _install(self) -> None:
        for block in self.transformer.blocks:
            block.attn1.set_processor(_SelfAttention())
        self.transformer.rope.register_forward_hook(self._keep_own_rope)
        self.transformer.blocks[0].register_forward_pre_hook(self._keep_own_tokens)
        self.transformer.proj_out.register_forward_hook(self._hand_over)

    def _own(self) -> slice:
        assert self._shape is not None  # set for the time of a forward
        return self.window(self._shape).own

    def _keep_own_rope(
        self,
        _module: nn.Module,
        _args: object,
        rope: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        cos, sin = rope
        return cos[:, self._own()], sin[:, self._own()]

    def _keep_own_tokens(self, _module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0][:, self._own()], *args[1:])

    def _hand_over(self, _module: nn.Module, _args: object, tokens_BnP: Tensor) -> Tensor:
        self._predicted = tokens_BnP
        assert self._shape is not None  # set for the time of a forward
        whole = self.config.token_count(self._shape)
        return tokens_BnP.new_zeros(()).expand(tokens_BnP.shape[0], whole, tokens_BnP.shape[2])


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


def _classes() -> tuple[Any, Any]:
    try:
        from diffusers import AutoencoderKLWan, WanTransformer3DModel
    except ImportError as error:
        what = f"the Wan models need diffusers ({error})"
        raise MissingDependencyError(what, hint="pip install 'arachne-opt[video]'") from error
    return AutoencoderKLWan, WanTransformer3DModel


def _load(choice: ModelChoice) -> tuple[Any, Any]:
    vae, transformer = _classes()
    folder = Path(choice.checkpoint)
    return _from_folder(vae, folder / "vae"), _from_folder(transformer, folder / "transformer")


def _from_folder(kind: Any, folder: Path) -> nn.Module:  # noqa: ANN401 - a class of an optional package
    """A model with the weights of all safetensors files of a folder.

    ``from_pretrained`` would need accelerate for models that keep some modules in fp32.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError("the checkpoint has no .safetensors file", where=str(folder))
    model: nn.Module = kind.from_config(kind.load_config(str(folder), local_files_only=True))
    missing = set(model.state_dict())
    try:
        for file in files:
            weights = load_file(str(file))
            missing -= weights.keys()
            model.load_state_dict(weights, strict=False)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise InputError(f"cannot load the checkpoint: {error}", where=str(folder)) from error
    if missing:
        what = f"the checkpoint lacks {len(missing)} tensors, among them {min(missing)}"
        raise InputError(what, where=str(folder))
    return model


def _random(choice: ModelChoice, config: ModelConfig) -> tuple[Any, Any]:
    vae, transformer = _classes()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(choice.seed)
        return vae(**vae_arguments(config)), transformer(**transformer_arguments(config))


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


def transformer_arguments(config: ModelConfig) -> dict[str, Any]:
    """Arguments of WanTransformer3DModel."""
    return {
        "patch_size": config.patch,
        "num_attention_heads": config.heads,
        "attention_head_dim": config.head_dim,
        "in_channels": config.latent_channels,
        "out_channels": config.latent_channels,
        "text_dim": config.text_dim,
        "freq_dim": 256 if config.width >= _REAL_WIDTH else 32,
        "ffn_dim": config.ffn_dim,
        "num_layers": config.layers,
    }
