"""One denoise task on one rank: noise, forward and backward over this rank's token window."""

from __future__ import annotations

import torch
from torch import Tensor

from arachne_opt.executor.adapters.base import DenoiseBatch, VideoAdapter
from arachne_opt.executor.seeds import clip_noise, clip_text, clip_timestep
from arachne_opt.executor.sequence_parallel import Window, active
from arachne_opt.executor.tokens import patchify
from arachne_opt.workload import MicroBatch


def denoise_task(
    adapter: VideoAdapter,
    batch: MicroBatch,
    clean_BnP: Tensor,
    window: Window,
    *,
    weight: float,
    seed: int,
    step: int,
) -> Tensor:
    """What this rank's tokens add to the loss; the gradient is added to the parameters.

    Args:
        adapter: the model.
        batch: the micro-batch.
        clean_BnP: latents of this rank's tokens.
        window: which tokens these are, and who has the others.
        weight: weight of each clip in the iteration's loss.
        seed: of the job.
        step: number of the optimizer step.
    """
    config = adapter.config
    inputs = _inputs(adapter, batch, clean_BnP, window, seed, step)
    scale = weight / (config.token_count(batch.shape) * config.token_features)
    with active(window):
        loss = scale * adapter.denoise_loss(inputs).sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
    return loss.detach()


def _inputs(
    adapter: VideoAdapter,
    batch: MicroBatch,
    clean_BnP: Tensor,
    window: Window,
    seed: int,
    step: int,
) -> DenoiseBatch:
    config, device = adapter.config, adapter.device
    size = (config.latent_channels, *config.latent_size(batch.shape))
    noise = torch.stack([clip_noise(seed, clip.id, step, size) for clip in batch.clips])
    times = [clip_timestep(seed, clip.id, step) for clip in batch.clips]
    texts = [
        clip_text(clip.id, clip.text_tokens, config.text_length, config.text_dim)
        for clip in batch.clips
    ]
    return DenoiseBatch(
        shape=batch.shape,
        clean=clean_BnP,
        noise=patchify(noise, config.patch)[:, window.own].to(device),
        timesteps=torch.tensor(times, device=device),
        text=torch.stack(texts).to(device),
    )
