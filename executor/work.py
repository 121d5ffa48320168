"""What a task does on one rank: the seam between the order of a plan and the work in it.

Public: ``TaskWork``, the real work ``ModelWork``, and ``build_work``, which chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.cascade.plan import Placement
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.denoising import denoise_task
from arachne_opt.executor.encoding import Member, encode_batch, share_out
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.model_config import ModelConfig
from arachne_opt.executor.pixels import to_pixels
from arachne_opt.executor.prefetch import Prefetch
from arachne_opt.executor.samples import Request, SampleReader
from arachne_opt.executor.seeds import clip_pixels
from arachne_opt.executor.sequence_parallel import Window, split_tokens
from arachne_opt.executor.texts import encode_texts, unpacked
from arachne_opt.executor.tokens import patchify
from arachne_opt.executor.weights import clip_weights
from arachne_opt.workload import Clip, MicroBatch, Shape

# Why clips are left out, by their id.
LeftOut = Mapping[str, str]


class TaskWork(Protocol):
    """The work of one rank's tasks, called in the order of the plan."""

    def begin(self, iteration: ReplayIteration, following: ReplayIteration | None) -> LeftOut:
        """Gets ready for an iteration; says which clips are left out of it, the same on all ranks.

        Args:
            iteration: the one that starts.
            following: the one after it, whose files may be read meanwhile.
        """
        ...

    def encode(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """All tokens (B, N, P) of a micro-batch, on every rank of the group."""
        ...

    def text(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """The embedded texts (B, 1, F) of a micro-batch, on every rank of the group."""
        ...

    def cached(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """This rank's tokens (B, n, P) of a micro-batch whose latents lie in files."""
        ...

    def denoise(
        self,
        iteration: ReplayIteration,
        placement: Placement,
        carried_BnP: Tensor,
        member: Member,
        *,
        step: int,
        texts_B1F: Tensor | None = None,
    ) -> Tensor:
        """What this rank's tokens add to the loss; the gradient is added to the parameters."""
        ...


def build_work(job: ReplayJob, adapter: VideoAdapter, rank: int) -> TaskWork:
    """The work that a job asks for."""
    if job.model.emulated:
        from arachne_opt.executor.emulation import EmulatedWork

        return EmulatedWork(adapter)
    return ModelWork(job, adapter, rank)


class ModelWork:
    """Encodes and trains with a model, on clips read ahead of their tasks.

    A file that cannot be used is known to all ranks before the iteration begins: everything that a
    rank needs of an iteration is read by then, during the one before. The clip keeps its place in
    the plan with a weight of 0, and the others share its weight.
    """

    def __init__(self, job: ReplayJob, adapter: VideoAdapter, rank: int) -> None:
        self._job, self._adapter, self._rank = job, adapter, rank
        self._recomputing = job.model.checkpointing
        self._prefetch = Prefetch(SampleReader(adapter.config).read)
        self._left_out: dict[str, str] = {}

    def begin(self, iteration: ReplayIteration, following: ReplayIteration | None) -> LeftOut:
        """Waits for this rank's files, agrees with the others on bad ones, and reads on.

        Raises:
            RunError: the plan computes activations again, which the model cannot.
        """
        if any(placement.recompute for placement in iteration.plan.placements):
            self._recompute(True)  # a model that cannot says so before anything has begun
        wanted = self._requests(iteration)
        failures = self._prefetch.collect(wanted, self._requests(following) if following else ())
        self._left_out = {}
        if any(
            c.path or c.latents or c.embeddings
            for b in iteration.batches.micro_batches
            for c in b.clips
        ):
            told: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
            dist.all_gather_object(told, {r.clip.id: why for r, why in failures.items()})
            for one in told:
                self._left_out |= one
        return self._left_out

    def encode(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """All tokens of a micro-batch."""
        batch = iteration.batch_of(placement.cascade)
        latents = encode_batch(self._adapter, batch, member, pixels=self._pixels)
        return patchify(latents, self._adapter.config.patch)

    def text(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """The texts of all clips."""
        return encode_texts(self._adapter, iteration.batch_of(placement.cascade), member)

    def cached(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """This rank's tokens, cut from the latent frames that it read."""
        batch, config = iteration.batch_of(placement.cascade), self._adapter.config
        window = self._window(batch, member)
        rows = []
        for request in self._latent_requests(batch, window):
            if request.clip.id in self._left_out:
                rows.append(torch.zeros(window.counts[window.index], config.carried_features))
                continue
            tokens = patchify(self._prefetch.take(request).unsqueeze(0), config.patch)[0]
            offset = request.first // config.patch[0] * _frame_tokens(batch, config)
            rows.append(tokens[window.own.start - offset : window.own.stop - offset])
        return torch.stack(rows).to(self._adapter.device)

    def denoise(
        self,
        iteration: ReplayIteration,
        placement: Placement,
        carried_BnP: Tensor,
        member: Member,
        *,
        step: int,
        texts_B1F: Tensor | None = None,
    ) -> Tensor:
        """The weighted loss of this rank's tokens."""
        self._recompute(self._job.model.checkpointing or placement.recompute)
        batch, config, job = iteration.batch_of(placement.cascade), self._adapter.config, self._job
        encoded = {} if texts_B1F is None else unpacked(texts_B1F, batch.clips, config)
        weights = clip_weights(iteration.batches, batch, job.weight_rule, config, self._left_out)
        read = {
            request.clip.id: self._prefetch.take(request)
            for request in _text_requests(batch)
            if request.clip.id not in self._left_out
        }
        return denoise_task(
            self._adapter,
            batch,
            carried_BnP,
            self._window(batch, member),
            weights=weights,
            seed=job.seed,
            step=step,
            embeddings=encoded | read,
        )

    def _recompute(self, wanted: bool) -> None:
        if wanted != self._recomputing:
            self._adapter.set_checkpointing(wanted)
            self._recomputing = wanted

    def _window(self, batch: MicroBatch, member: Member) -> Window:
        counts = split_tokens(self._adapter.config.token_count(batch.shape), member.degree)
        return Window(counts=counts, index=member.index, group=member.group)

    def _pixels(self, clip: Clip, shape: Shape) -> Tensor:
        if clip.id in self._left_out:
            return torch.zeros(3, shape.frames, shape.height, shape.width)
        if not clip.path:
            return clip_pixels(clip.id, (3, shape.frames, shape.height, shape.width))
        frames: Tensor = self._prefetch.take(Request(kind="pixels", clip=clip, shape=shape))
        return to_pixels(frames)

    def _requests(self, iteration: ReplayIteration) -> tuple[Request, ...]:
        """What this rank has to read for an iteration, in the order of its tasks."""
        found: list[Request] = []
        for placement in iteration.plan.placements:
            if self._rank not in placement.devices:
                continue
            batch = iteration.batch_of(placement.cascade)
            member = Member(
                index=sorted(placement.devices).index(self._rank), degree=placement.degree
            )
            if not iteration.denoises(placement):
                encoded = iteration.encodes(placement)
                found += self._pixel_requests(batch, member) if encoded else []
                continue
            if not iteration.is_encoded(placement.cascade):
                found += self._latent_requests(batch, self._window(batch, member))
            found += _text_requests(batch)
        return tuple(found)

    def _pixel_requests(self, batch: MicroBatch, member: Member) -> list[Request]:
        """Clips of which this rank encodes a piece."""
        pieces = share_out(self._adapter.config, batch.shape, batch.size, member.degree)
        own = sorted({piece.clip for piece in pieces if piece.owner == member.index})
        clips = [batch.clips[index] for index in own]
        return [Request(kind="pixels", clip=c, shape=batch.shape) for c in clips if c.path]

    def _latent_requests(self, batch: MicroBatch, window: Window) -> list[Request]:
        """The latent frames that hold this rank's tokens, of every clip."""
        config = self._adapter.config
        per_frame = _frame_tokens(batch, config)
        first = window.own.start // per_frame * config.patch[0]
        last = -(-window.own.stop // per_frame) * config.patch[0]
        return [
            Request(kind="latents", clip=clip, shape=batch.shape, first=first, last=last)
            for clip in batch.clips
        ]


def _text_requests(batch: MicroBatch) -> list[Request]:
    """Embeddings that lie in files."""
    return [
        Request(kind="embeddings", clip=clip, shape=batch.shape)
        for clip in batch.clips
        if clip.embeddings or clip.latents
    ]


def _frame_tokens(batch: MicroBatch, config: ModelConfig) -> int:
    """Tokens of one row of patches in time."""
    _, rows, columns = config.grid(batch.shape)
    return rows * columns
