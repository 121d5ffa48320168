"""The ranks' side of a measurement: tasks alone on ranks 0 to k-1, while the others block."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.denoising import denoise_task
from arachne_opt.executor.distributed import Clock, pick_device
from arachne_opt.executor.encoding import Member, encode_batch
from arachne_opt.executor.gradients import GradientBuckets
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.measure import MeasureJob, Work
from arachne_opt.executor.memory import PeakMemory
from arachne_opt.executor.seeds import generator
from arachne_opt.executor.sequence_parallel import Window, split_tokens
from arachne_opt.executor.texts import encode_texts
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.records import Measurement
from arachne_opt.workload import MicroBatch

TIMEOUT_S = 1800.0


class Meter:
    """Measures on one rank; every rank makes one, inside an initialised process group."""

    def __init__(self, job: MeasureJob, watchdog: Watchdog) -> None:
        device = pick_device(job.device)
        self._job, self._watchdog = job, watchdog
        self._adapter = build_adapter(job.model, device)
        self._memory = PeakMemory((self._adapter.vae, self._adapter.transformer), device)
        # Gradients take their place in memory, as in training.
        self._buckets = GradientBuckets(self._adapter.transformer.parameters())
        # The optimizer's moments do, too: two for each weight, shared out over all ranks.
        flat_bytes = sum(b.flat.numel() * b.flat.element_size() for b in self._buckets.buckets)
        self._moments_bytes = 2 * flat_bytes // dist.get_world_size()
        self._pool = GroupPool()
        self._clock = Clock(device)

    def run(self, on_done: Callable[[int, Measurement], None]) -> tuple[Measurement, ...]:
        """All measurements, the same on every rank; ``on_done`` gets each with its number."""
        results = []
        for number, work in enumerate(self._job.work(), start=1):
            label = f"measuring {work.task} of {work.batch.label} at degree {work.degree}"
            with self._watchdog.task(label, TIMEOUT_S):
                results.append(self._measure(work))
            on_done(number, results[-1])
        return tuple(results)

    def _measure(self, work: Work) -> Measurement:
        batch, task, degree, recompute = work
        ranks = tuple(range(degree))
        if self._job.recompute:
            self._adapter.set_checkpointing(recompute)
        self._pool.prepare({ranks: TIMEOUT_S})
        self._buckets.zero()
        figures = torch.zeros(self._job.repeats + 1, dtype=torch.float64)
        self._clock.restart()
        if self._watchdog.rank < degree:
            member = Member(index=self._watchdog.rank, degree=degree, group=self._pool.get(ranks))
            if task == "text":
                self._adapter.encode_text("")  # the encoder is made when it is first asked
            encoder = self._adapter.text_encoder if task == "text" else None
            with self._memory.watch(*filter(None, (encoder,))):  # warms up, too
                self._run(batch, task, member)
            figures[1:] = torch.tensor(self._repeat(batch, task, member))
            figures[0] = self._memory.bytes + self._moments_bytes
        # The slowest rank counts. The idle ones wait here, blocked in gloo.
        dist.all_reduce(figures, op=dist.ReduceOp.MAX)
        return Measurement(
            model=self._job.model.name,
            task=task,
            device_type=self._job.device_type,
            degree=degree,
            batch=batch.size,
            frames=batch.shape.frames,
            height=batch.shape.height,
            width=batch.shape.width,
            text_tokens=batch.text_tokens,
            duration_us=max(1, round(statistics.median(figures[1:].tolist()))),
            memory_bytes=int(figures[0]),
            source="profile",
            recompute=recompute,
        )

    def _repeat(self, batch: MicroBatch, task: str, member: Member) -> list[float]:
        times = []
        more = max(0, self._job.warmup - 1)
        for _ in range(more + self._job.repeats):
            if member.group is not None:
                dist.all_reduce(torch.zeros(1), group=member.group)
            start = self._clock.now_us()
            self._run(batch, task, member)
            times.append(float(self._clock.now_us() - start))
        return times[more:]

    def _run(self, batch: MicroBatch, task: str, member: Member) -> None:
        if task == "encode":
            encode_batch(self._adapter, batch, member)
        elif task == "text":
            encode_texts(self._adapter, batch, member)
        else:
            self._denoise(batch, member)

    def _denoise(self, batch: MicroBatch, member: Member) -> None:
        config = self._adapter.config
        counts = split_tokens(config.token_count(batch.shape), member.degree)
        window = Window(counts=counts, index=member.index, group=member.group)
        clean = self._latents(batch, window)
        seed, weights = self._job.seed, [1.0] * batch.size
        denoise_task(self._adapter, batch, clean, window, weights=weights, seed=seed, step=0)

    def _latents(self, batch: MicroBatch, window: Window) -> Tensor:
        size = (batch.size, window.counts[window.index], self._adapter.config.carried_features)
        return torch.randn(size, generator=generator("latents")).to(self._adapter.device)
