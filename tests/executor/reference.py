"""What one process computes, written without the runtime: no groups, no windows, clip by clip.

Only the definitions of randomness and of weights' seeds are shared with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.adapters.toy import _positions
from arachne_opt.executor.adapters.wan import transformer_arguments, vae_arguments
from arachne_opt.executor.job import ReplayJob
from arachne_opt.executor.model_config import ModelChoice, ModelConfig
from arachne_opt.executor.seeds import clip_noise, clip_pixels, clip_text, clip_timestep
from arachne_opt.workload import Shape

Encode = Callable[[Tensor], Tensor]
Velocity = Callable[[Tensor, Tensor, Tensor, Shape], Tensor]


def wan(choice: ModelChoice) -> tuple[nn.Module, Encode, Velocity]:
    """Diffusers' own models, tiling and attention."""
    from diffusers import AutoencoderKLWan, WanTransformer3DModel

    config = choice.config()
    torch.manual_seed(choice.seed)
    vae = AutoencoderKLWan(**vae_arguments(config))
    transformer = WanTransformer3DModel(**transformer_arguments(config))
    vae.enable_tiling(config.tile, config.tile, config.tile_stride, config.tile_stride)

    def encode(pixels: Tensor) -> Tensor:
        with torch.no_grad():
            return vae.encode(pixels).latent_dist.mode()

    def velocity(noisy: Tensor, time: Tensor, text: Tensor, shape: Shape) -> Tensor:
        return transformer(noisy, 1000 * time, text, return_dict=False)[0]

    return transformer, encode, velocity


def toy(choice: ModelChoice) -> tuple[nn.Module, Encode, Velocity]:
    """The toy's modules, called directly on all tokens."""
    config = choice.config()
    adapter = build_adapter(choice, torch.device("cpu"))

    def velocity(noisy: Tensor, time: Tensor, text: Tensor, shape: Shape) -> Tensor:
        positions = _positions(config.grid(shape), config.width, torch.device("cpu"))
        return _latents(adapter.transformer(_tokens(noisy), time, text, positions), shape, config)

    return adapter.transformer, adapter.encode, velocity


MODELS = {"toy": toy, "tiny-wan": wan}


def clip_loss(
    job: ReplayJob, step: int, encode: Encode, velocity: Velocity, latents: dict[str, Tensor]
) -> Iterable[tuple[float, Tensor]]:
    """(share, mean squared error) of each clip; shares follow the rule and add up to 1."""
    config = job.model.config()
    batches = job.iteration_of(step).batches.micro_batches
    clips = [(clip, b.shape) for b in batches for clip in b.clips]
    weigh = config.token_count if job.weight_rule == "token" else lambda shape: 1
    total = sum(weigh(shape) for _, shape in clips)
    for clip, shape in clips:
        if clip.id not in latents:
            pixels = clip_pixels(clip.id, (3, shape.frames, shape.height, shape.width))
            latents[clip.id] = encode(pixels[None])
        clean = latents[clip.id]
        noise = clip_noise(job.seed, clip.id, step, clean.shape[1:])[None]
        time = torch.tensor([clip_timestep(job.seed, clip.id, step)])
        length = config.text_length
        text = clip_text(clip.id, clip.text_tokens, length, config.text_dim)[None]
        noisy = (1 - time) * clean + time * noise
        error = velocity(noisy, time, text, shape) - (noise - clean)
        yield weigh(shape) / total, error.square().mean()


def train(job: ReplayJob) -> tuple[list[float], list[dict[str, Tensor]], dict[str, Tensor]]:
    """Losses, gradients of each step and the parameters after the last one."""
    torch.set_num_threads(1)  # more of them only get in each other's way here
    model, encode, velocity = MODELS[job.model.preset](job.model)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=job.learning_rate, weight_decay=job.weight_decay
    )
    losses, gradients, latents = [], [], {}
    for step in range(job.steps):
        optimizer.zero_grad()
        parts = clip_loss(job, step, encode, velocity, latents)
        loss = sum(share * error for share, error in parts)
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
        optimizer.step()
    return losses, gradients, {name: p.detach() for name, p in model.named_parameters()}


def worst_difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Largest difference of any tensor, relative to its norm."""
    assert found.keys() == wanted.keys()
    return max(
        ((found[name] - wanted[name]).norm() / wanted[name].norm()).item() for name in wanted
    )


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
