"""What the diffusers models have in common: loading, and hooks for a window that changes.

diffusers' own context parallelism is set up once per model, so its degree cannot change from task
to task. Here three hooks read the active window instead: the first block keeps this rank's tokens,
rope keeps their positions, the output projection hands them over before the model restores the
full grid. Patches are embedded one by one, so that tokens of other ranks may be zeros at the
model's door.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from arachne_opt.errors import InputError, MissingDependencyError
from arachne_opt.executor.adapters.base import DenoiseBatch, VideoAdapter
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.sequence_parallel import own_text, own_tokens
from arachne_opt.executor.tokens import unpatchify

TRAIN_TIMESTEPS = 1000

# Real models embed time in 256 features; the narrowest of them is this wide.
REAL_WIDTH = 1536


class DiffusersAdapter(VideoAdapter):
    """A VAE and a transformer of diffusers, with random weights or from a folder."""

    vae_class: ClassVar[str]
    transformer_class: ClassVar[str]
    # Classes of an optional package.
    vae: Any
    transformer: Any

    def __init__(self, choice: ModelChoice, device: torch.device) -> None:
        super().__init__(choice, device)
        self.choice = choice
        vae, transformer = self._load(choice) if choice.checkpoint else self._random(choice)
        self.vae = vae.requires_grad_(False).eval().to(device)
        self.transformer = transformer.to(device)
        self._whole = 0
        self._predicted: Tensor | None = None
        self.transformer.proj_out.register_forward_hook(self._hand_over)
        self._install()

    @staticmethod
    @abstractmethod
    def vae_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of the VAE class."""

    @staticmethod
    @abstractmethod
    def transformer_arguments(config: ModelConfig) -> dict[str, Any]:
        """Arguments of the transformer class."""

    @abstractmethod
    def _install(self) -> None:
        """Puts hooks and attention into the transformer."""

    @abstractmethod
    def _forward(self, latents_BCTHW: Tensor, batch: DenoiseBatch) -> None:
        """Runs the transformer on latents of which this rank's tokens are filled in."""

    def predict(self, noisy_BnP: Tensor, batch: DenoiseBatch) -> Tensor:
        """Prediction for this rank's tokens, taken at the output projection."""
        whole = self.config.token_count(batch.shape)
        full = noisy_BnP.new_zeros(noisy_BnP.shape[0], whole, noisy_BnP.shape[2])
        full[:, self.window(batch.shape).own] = noisy_BnP
        self._whole = whole
        self._forward(unpatchify(full, self.config.grid(batch.shape), self.config.patch), batch)
        predicted, self._predicted = self._predicted, None
        assert predicted is not None  # the hook on the output projection ran
        return predicted

    def set_checkpointing(self, enabled: bool) -> None:
        """Switches diffusers' own gradient checkpointing."""
        if enabled:
            self.transformer.enable_gradient_checkpointing()
        else:
            self.transformer.disable_gradient_checkpointing()

    def _hand_over(self, _module: nn.Module, _args: object, tokens_BnP: Tensor) -> Tensor:
        self._predicted = tokens_BnP
        return tokens_BnP.new_zeros(()).expand(
            tokens_BnP.shape[0], self._whole, tokens_BnP.shape[2]
        )

    def _load(self, choice: ModelChoice) -> tuple[nn.Module, nn.Module]:
        vae, transformer = self.classes()
        folder = Path(choice.checkpoint)
        return _from_folder(vae, folder / "vae"), _from_folder(transformer, folder / "transformer")

    def _random(self, choice: ModelChoice) -> tuple[nn.Module, nn.Module]:
        vae, transformer = self.classes()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(choice.seed)
            return (
                _drop_decoder(vae(**self.vae_arguments(self.config))),
                transformer(**self.transformer_arguments(self.config)),
            )

    @classmethod
    def classes(cls) -> tuple[Any, Any]:
        """The VAE and the transformer of diffusers."""
        try:
            import diffusers

            return getattr(diffusers, cls.vae_class), getattr(diffusers, cls.transformer_class)
        except (ImportError, AttributeError) as error:
            what = f"{cls.transformer_class} needs diffusers ({error})"
            raise MissingDependencyError(what, hint="pip install 'arachne-opt[video]'") from error


def keep_own(
    _module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], *, joint: bool
) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """A block's inputs for this rank: its window of the video and, where joint, of the text.

    diffusers passes them by place or, without checkpointing, by name.
    """
    kept, named = list(args), dict(kwargs)
    for place, name in enumerate(("hidden_states", "encoder_hidden_states")[: 1 + joint]):
        whole = kept[place] if place < len(kept) else named[name]
        own = whole[:, own_text(whole.shape[1]) if place else own_tokens()]
        if place < len(kept):
            kept[place] = own
        else:
            named[name] = own
    return tuple(kept), named


def channels_last(tokens_BnP: Tensor, channels: int) -> Tensor:
    """Values of each token with the channel last, from a model that puts it first."""
    by_channel = tokens_BnP.view(*tokens_BnP.shape[:2], channels, -1)
    return by_channel.transpose(-1, -2).flatten(-2)


def kl_vae_arguments(config: ModelConfig, kind: str) -> dict[str, Any]:
    """Arguments that the VAEs of CogVideoX and HunyuanVideo share."""
    levels = len(config.vae_multipliers)
    return {
        "down_block_types": (f"{kind}DownBlock3D",) * levels,
        "up_block_types": (f"{kind}UpBlock3D",) * levels,
        "block_out_channels": tuple(config.vae_dim * m for m in config.vae_multipliers),
        "latent_channels": config.latent_channels,
        "layers_per_block": config.vae_blocks,
        "norm_num_groups": min(32, config.vae_dim // 2),
        "temporal_compression_ratio": config.temporal_factor,
    }


def _drop_decoder(model: nn.Module) -> nn.Module:
    """The model without the decoder of a VAE: nothing is decoded, so it need take no memory."""
    if hasattr(model, "decoder"):
        model.decoder = nn.Identity()
    return model


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
    _drop_decoder(model)
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
