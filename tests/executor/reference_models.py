"""Models for the reference: diffusers' own classes, attention and tiling, called on whole clips."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from arachne_opt.executor.adapters import _class, build_adapter
from arachne_opt.executor.adapters.toy import _positions
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.workload import Shape


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One clip, batched: all that a prediction depends on."""

    noisy: Tensor
    clean: Tensor
    noise: Tensor
    time: Tensor
    first: Tensor
    text: Tensor
    tokens: int
    extras: dict[str, Tensor]
    shape: Shape


def flow(clean: Tensor, noise: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """Noisy latents and the target of flow matching."""
    return (1 - time) * clean + time * noise, noise - clean


@dataclass(frozen=True, kw_only=True)
class Model:
    """What an encode task hands over (``encode``) and what the loss compares with its target."""

    module: nn.Module
    encode: Callable[[Tensor], Tensor]
    predict: Callable[[Sample], Tensor]
    mix: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]] = flow


def wan(choice: ModelChoice) -> Model:
    config, vae, transformer = _built(choice)
    vae.enable_tiling(config.tile, config.tile, config.tile_stride, config.tile_stride)

    def encode(pixels: Tensor) -> Tensor:
        with torch.no_grad():
            latents = vae.encode(pixels).latent_dist.mode()
            if not config.from_image:
                return latents
            nothing = torch.zeros_like(pixels[:, :, 1:])
            first = vae.encode(torch.cat((pixels[:, :, :1], nothing), dim=2)).latent_dist.mode()
            return torch.cat((latents, first), dim=1)

    def predict(sample: Sample) -> Tensor:
        seen, image = sample.noisy, None
        if config.from_image:
            # As in the pipeline: one mask per frame, the first frame four times, by latent frame.
            b, _, t, h, w = seen.shape
            mask = torch.zeros(b, 4 * t, h, w)
            mask[:, :4] = 1
            mask = mask.view(b, t, 4, h, w).transpose(1, 2)
            seen, image = torch.cat((seen, mask, sample.first), dim=1), sample.extras["image"]
        return transformer(seen, 1000 * sample.time, sample.text, image, return_dict=False)[0]

    return Model(module=transformer, encode=encode, predict=predict)


def cogvideox(choice: ModelChoice) -> Model:
    from diffusers import CogVideoXDDIMScheduler
    from diffusers.models.embeddings import get_3d_rotary_pos_embed

    config, vae, transformer = _built(choice)
    scheduler = CogVideoXDDIMScheduler(
        prediction_type="v_prediction", rescale_betas_zero_snr=True, snr_shift_scale=3.0
    )

    def encode(pixels: Tensor) -> Tensor:
        with torch.no_grad():
            return vae.encode(pixels).latent_dist.mode() * vae.config.scaling_factor

    def predict(sample: Sample) -> Tensor:
        frames, rows, columns = config.grid(sample.shape)
        crop = pipeline_function("get_resize_crop_region_for_grid")
        rope = get_3d_rotary_pos_embed(
            config.head_dim, crop((rows, columns), 45, 30), (rows, columns), frames
        )
        result = transformer(
            sample.noisy.transpose(1, 2),
            sample.text,
            (1000 * sample.time).long(),
            image_rotary_emb=rope if config.rotary else None,
            return_dict=False,
        )[0]
        return result.transpose(1, 2)

    def mix(clean: Tensor, noise: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        step = (1000 * time).long()
        noisy = scheduler.add_noise(clean, noise, step)
        return noisy, scheduler.get_velocity(clean, noise, step)

    return Model(module=transformer, encode=encode, predict=predict, mix=mix)


def pipeline_function(name: str) -> Callable:
    """A function of diffusers' pipeline of CogVideoX, which cannot be imported as a whole."""
    import diffusers

    path = Path(diffusers.__file__).parent / "pipelines" / "cogvideo" / "pipeline_cogvideox.py"
    tree = ast.parse(path.read_text())
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    names: dict[str, Callable] = {}
    exec(compile(ast.Module(found, []), str(path), "exec"), names)
    return names[name]


def hunyuan_video(choice: ModelChoice) -> Model:
    config, vae, transformer = _built(choice)
    tile, stride = config.tile, config.tile_stride
    vae.enable_tiling(tile, tile, None, stride, stride, None)

    def encode(pixels: Tensor) -> Tensor:
        with torch.no_grad():
            return vae.encode(pixels).latent_dist.mode() * vae.config.scaling_factor

    def predict(sample: Sample) -> Tensor:
        mask = torch.arange(config.text_length)[None] < sample.tokens
        return transformer(
            sample.noisy,
            1000 * sample.time,
            sample.text,
            mask,
            sample.extras["pooled"],
            torch.tensor([1000.0]),
            return_dict=False,
        )[0]

    return Model(module=transformer, encode=encode, predict=predict)


def toy(choice: ModelChoice) -> Model:
    """The toy's modules, called directly on all tokens."""
    config = choice.config()
    adapter = build_adapter(choice, torch.device("cpu"))

    def predict(sample: Sample) -> Tensor:
        positions = _positions(config.grid(sample.shape), config.width, torch.device("cpu"))
        tokens = adapter.transformer(_tokens(sample.noisy), sample.time, sample.text, positions)
        return _latents(tokens, sample.shape, config)

    return Model(module=adapter.transformer, encode=adapter.encode, predict=predict)


MODELS = {
    "toy": toy,
    "tiny-wan": wan,
    "tiny-wan-i2v": wan,
    "tiny-cogvideox": cogvideox,
    "tiny-hunyuan-video": hunyuan_video,
}


def _built(choice: ModelChoice) -> tuple[ModelConfig, nn.Module, nn.Module]:
    import diffusers

    config = choice.config()
    adapter = _class(config.family)
    torch.manual_seed(choice.seed)
    vae = getattr(diffusers, adapter.vae_class)(**adapter.vae_arguments(config))
    arguments = adapter.transformer_arguments(config)
    transformer = getattr(diffusers, adapter.transformer_class)(**arguments)
    return config, vae.eval(), transformer


def _tokens(latents: Tensor) -> Tensor:
    """Patches of 1 x 2 x 2, one token each, channels last."""
    columns = [
        latents[:, :, :, i::2, j::2].flatten(2).transpose(1, 2) for i in (0, 1) for j in (0, 1)
    ]
    return torch.cat(columns, dim=-1)


def _latents(tokens: Tensor, shape: Shape, config: ModelConfig) -> Tensor:
    t, h, w = config.latent_size(shape)
    parts = tokens.transpose(1, 2).unflatten(2, (t, h // 2, w // 2)).chunk(4, dim=1)
    result = tokens.new_zeros(tokens.shape[0], config.latent_channels, t, h, w)
    for number, part in enumerate(parts):
        result[:, :, :, number // 2 :: 2, number % 2 :: 2] = part
    return result
