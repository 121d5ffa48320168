"""What one process computes, written without the runtime: no groups, no windows, clip by clip.

Only the definitions of randomness and of weights' seeds are shared with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from safetensors.torch import load_file
from torch import Tensor

from arachne_opt.executor.job import ReplayJob
from arachne_opt.executor.seeds import (
    clip_extra,
    clip_noise,
    clip_pixels,
    clip_text,
    clip_timestep,
)
from arachne_opt.workload import Clip, Shape
from tests.executor.reference_models import MODELS, Model, Sample


def clip_loss(
    job: ReplayJob,
    step: int,
    model: Model,
    latents: dict[str, Tensor],
    left_out: Collection[str] = (),
) -> Iterable[tuple[float, Tensor]]:
    """(share, mean squared error) of each clip; shares follow the rule and add up to 1."""
    config = job.model.config()
    batches = job.iteration_of(step).batches.micro_batches
    clips = [(clip, b.shape) for b in batches for clip in b.clips if clip.id not in left_out]
    weigh = config.token_count if job.weight_rule == "token" else lambda shape: 1
    total = sum(weigh(shape) for _, shape in clips)
    for clip, shape in clips:
        if clip.id not in latents:
            latents[clip.id] = _carried(clip, shape, model)
        sample, wanted = _sample(job, step, clip, shape, model, latents[clip.id])
        error = model.predict(sample) - wanted
        yield weigh(shape) / total, error.square().mean()


def train(
    job: ReplayJob, left_out: Collection[str] = ()
) -> tuple[list[float], list[dict[str, Tensor]], dict[str, Tensor]]:
    """Losses, gradients of each step and the parameters after the last one."""
    torch.set_num_threads(1)  # more of them only get in each other's way here
    model = MODELS[job.model.preset](job.model)
    module = model.module
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=job.learning_rate, weight_decay=job.weight_decay
    )
    losses, gradients, latents = [], [], {}
    for step in range(job.steps):
        optimizer.zero_grad()
        parts = clip_loss(job, step, model, latents, left_out)
        loss = sum(share * error for share, error in parts)
        loss.backward()
        losses.append(loss.item())
        gradients.append(
            {
                name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
                for name, p in module.named_parameters()
            }
        )
        optimizer.step()
    return losses, gradients, {name: p.detach() for name, p in module.named_parameters()}


def worst_difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Largest difference of any tensor, relative to its norm.

    Some gradients are small sums of large terms, such as those of what shifts all keys of an
    attention alike: there rounding decides, about 1e-7 of the whole. So 1 % of the norm of the
    whole gradient is the least that a difference is compared with.
    """
    assert found.keys() == wanted.keys()
    least = 1e-2 * sum(tensor.square().sum().item() for tensor in wanted.values()) ** 0.5
    return max(
        (found[name] - wanted[name]).norm().item() / max(wanted[name].norm().item(), least)
        for name in wanted
    )


def _carried(clip: Clip, shape: Shape, model: Model) -> Tensor:
    if clip.latents:
        return load_file(clip.latents)["latents"][None]
    return model.encode(clip_pixels(clip.id, (3, shape.frames, shape.height, shape.width))[None])


def _sample(
    job: ReplayJob, step: int, clip: Clip, shape: Shape, model: Model, carried: Tensor
) -> tuple[Sample, Tensor]:
    config = job.model.config()
    clean, first = carried[:, : config.latent_channels], carried[:, config.latent_channels :]
    noise = clip_noise(job.seed, clip.id, step, clean.shape[1:])[None]
    time = torch.tensor([clip_timestep(job.seed, clip.id, step)])
    noisy, wanted = model.mix(clean, noise, time)
    text, tokens = clip_text(clip.id, clip.text_tokens, config.text_length, config.text_dim), None
    extras = {name: clip_extra(clip.id, name, size) for name, size in config.extras.items()}
    if clip.latents or clip.embeddings:
        kept = load_file(clip.embeddings or clip.latents)
        if "text" in kept:
            tokens = len(kept["text"])
            text = torch.cat(
                (kept["text"], torch.zeros(config.text_length - tokens, config.text_dim))
            )
        extras |= {name: kept[name] for name in extras if name in kept}
    sample = Sample(
        noisy=noisy,
        clean=clean,
        noise=noise,
        time=time,
        first=first,
        text=text[None],
        tokens=min(tokens or clip.text_tokens, config.text_length),
        extras={name: value[None] for name, value in extras.items()},
        shape=shape,
    )
    return sample, wanted
