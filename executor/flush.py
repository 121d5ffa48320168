"""A forward and backward of weight 0, inside which FSDP2 sums the gradients of an iteration."""

from __future__ import annotations

import torch

from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.denoising import denoise_task
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.sequence_parallel import Window
from arachne_opt.workload import MicroBatch


def flush_task(adapter: VideoAdapter, job: ReplayJob, iteration: ReplayIteration) -> None:
    """Runs one clip of the smallest shape; every gradient that it adds is 0."""
    config = adapter.config
    batches = iteration.batches.micro_batches
    smallest = min(batches, key=lambda batch: config.token_count(batch.shape))
    clip = MicroBatch(id="flush", shape=smallest.shape, clips=smallest.clips[:1])
    tokens = config.token_count(clip.shape)
    clean = torch.zeros(1, tokens, config.carried_features, device=adapter.device)
    window = Window(counts=(tokens,))
    denoise_task(adapter, clip, clean, window, weights=[0.0], seed=job.seed, step=0)
