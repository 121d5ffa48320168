"""One denoise task on one rank: noise, forward and backward over this rank's token window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from arachne_opt.executor.adapters.base import DenoiseBatch, VideoAdapter
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.seeds import clip_extra, clip_noise, clip_text, clip_timestep
from arachne_opt.executor.sequence_parallel import Window, active
from arachne_opt.executor.tokens import patchify
from arachne_opt.workload import Clip, MicroBatch

# Embeddings of one clip by name: "text" and the model's extras.
Embeddings = Mapping[str, Tensor]


def denoise_task(
    adapter: VideoAdapter,
    batch: MicroBatch,
    carried_BnP: Tensor,
    window: Window,
    *,
    weights: Sequence[float],
    seed: int,
    step: int,
    embeddings: Mapping[str, Embeddings] | None = None,
) -> Tensor:
    """What this rank's tokens add to the loss; the gradient is added to the parameters.

    Args:
        adapter: the model.
        batch: the micro-batch.
        carried_BnP: what was encoded, for this rank's tokens.
        window: which tokens these are, and who has the others.
        weights: weight of each clip in the iteration's loss; 0 leaves it out.
        seed: of the job.
        step: number of the optimizer step.
        embeddings: those read from files, by clip; stand-ins for what is missing.
    """
    config = adapter.config
    inputs = _inputs(adapter, batch, carried_BnP, window, seed, step, embeddings or {})
    scale = torch.tensor(weights, device=adapter.device)
    scale = scale / (config.token_count(batch.shape) * config.token_features)
    with active(window):
        loss = (scale * adapter.denoise_loss(inputs)).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
    return loss.detach()


def _inputs(
    adapter: VideoAdapter,
    batch: MicroBatch,
    carried_BnP: Tensor,
    window: Window,
    seed: int,
    step: int,
    embeddings: Mapping[str, Embeddings],
) -> DenoiseBatch:
    config, device = adapter.config, adapter.device
    size = (config.latent_channels, *config.latent_size(batch.shape))
    noise = torch.stack([clip_noise(seed, clip.id, step, size) for clip in batch.clips])
    times = [clip_timestep(seed, clip.id, step) for clip in batch.clips]
    known = [(clip, embeddings.get(clip.id, {})) for clip in batch.clips]
    texts, lengths = zip(*(_text(clip, config, found) for clip, found in known), strict=True)
    clean, first_frame = split_carried(carried_BnP, config)
    return DenoiseBatch(
        shape=batch.shape,
        clean=clean,
        noise=patchify(noise, config.patch)[:, window.own].to(device),
        timesteps=torch.tensor(times, device=device),
        text=torch.stack(texts).to(device),
        text_lengths=torch.tensor(lengths, device=device),
        first_frame=first_frame,
        extras={
            name: torch.stack([_extra(clip, name, size, found) for clip, found in known]).to(device)
            for name, size in config.extras.items()
        },
    )


def split_carried(carried_BnP: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor | None]:
    """Latents of tokens, and those of the first frame where the model starts from an image."""
    if not config.from_image:
        return carried_BnP, None
    by_channel = carried_BnP.view(*carried_BnP.shape[:2], -1, config.carried_channels)
    clean, first = by_channel.chunk(2, dim=-1)
    return clean.flatten(-2), first.flatten(-2)


def _text(clip: Clip, config: ModelConfig, found: Embeddings) -> tuple[Tensor, int]:
    """Text embeddings (L, D), padded with zeros, and how many tokens are no padding."""
    if "text" not in found:
        text = clip_text(clip.id, clip.text_tokens, config.text_length, config.text_dim)
        return text, config.text_tokens(clip.text_tokens)
    known = found["text"][: config.text_length]
    text = torch.zeros(config.text_length, config.text_dim)
    text[: len(known)] = known
    return text, config.text_tokens(len(known))


def _extra(clip: Clip, name: str, size: tuple[int, ...], found: Embeddings) -> Tensor:
    return found[name] if name in found else clip_extra(clip.id, name, size)
