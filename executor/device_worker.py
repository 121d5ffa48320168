"""The ranks' side of measuring rows and links: ranks 0 to k-1 work while the others block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from arachne_opt.executor.device_job import LINK_MODEL, LINKS, ROW_KINDS, DeviceJob
from arachne_opt.executor.distributed import Clock, pick_device
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.memory import PeakMemory
from arachne_opt.executor.pipeline.models.configs import spec_of_architecture
from arachne_opt.executor.pipeline.models.parameters import row_parameters
from arachne_opt.executor.pipeline.models.rows import build_row, token_loss
from arachne_opt.executor.pipeline.models.spec import DecoderSpec
from arachne_opt.executor.pipeline.seams import Company, join_group, keep_parts
from arachne_opt.executor.watchdog import Watchdog
from arachne_opt.pipeline.cells import box_of
from arachne_opt.records import Measurement

TIMEOUT_S = 1800.0

# Told after each step: its number, what was measured, and the median time in microseconds.
OnDone = Callable[[int, str, int], None]


class DeviceMeter:
    """Measures on one rank; every rank makes one, inside an initialised process group."""

    def __init__(self, job: DeviceJob, watchdog: Watchdog) -> None:
        self._job, self._watchdog = job, watchdog
        self._device = pick_device(job.device)
        self._clock = Clock(self._device)
        self._pool = GroupPool()

    def run(self, on_done: OnDone) -> tuple[Measurement, ...]:
        """All measurements, the same on every rank."""
        results: list[Measurement] = []
        for number, (label, work) in enumerate(self._steps(), start=1):
            with self._watchdog.task(f"measuring {label}", TIMEOUT_S):
                results += work()
            times = sorted(m.duration_us for m in results[-self._job.repeats :])
            on_done(number, label, times[len(times) // 2])
        return tuple(results)

    def _steps(self) -> Iterator[tuple[str, Callable[[], list[Measurement]]]]:
        job = self._job
        for tp, microbatch in job.points:
            label = f"rows of {job.model} at tp {tp}, micro-batch {microbatch}"
            yield label, partial(self._rows, tp, microbatch)
        for degree in (k for k in job.degrees if k > 1):
            for operation in LINKS:
                for size in job.sizes_bytes:
                    label = f"{operation} of {size} bytes among {degree}"
                    yield label, partial(self._link, operation, degree, size)

    def _rows(self, tp: int, microbatch: int) -> list[Measurement]:
        """Forward, backward and update of the embedding, a block and the head."""
        found: list[Measurement] = []
        for kind in ROW_KINDS:
            times = torch.zeros(3 * self._job.repeats + 1, dtype=torch.float64)
            company = self._company(tp)
            self._clock.restart()
            if self._watchdog.rank < tp:
                bench = _RowBench(self._job, kind, tp, microbatch, self._device, company)
                for _ in range(self._job.warmup):
                    bench.run(self._clock, company)
                runs = [bench.run(self._clock, company) for _ in range(self._job.repeats)]
                times[1:] = torch.tensor(runs, dtype=torch.float64).T.flatten()
                times[0] = bench.peak_bytes()
            dist.all_reduce(times, op=dist.ReduceOp.MAX)
            found += self._row_measurements(kind, tp, microbatch, times)
        return found

    def _row_measurements(
        self, kind: str, tp: int, microbatch: int, times: Tensor
    ) -> list[Measurement]:
        by_pass = times[1:].view(3, self._job.repeats).tolist()
        sequence = self._job.architecture().sequence_length
        return [
            self._measurement(
                self._job.model, f"row {which} {kind}", tp, microbatch, sequence, us, int(times[0])
            )
            for which, runs in zip(("forward", "backward", "update"), by_pass, strict=True)
            for us in runs
        ]

    def _company(self, degree: int) -> Company | None:
        """The group of the first ranks, made by all; None for a rank alone or outside."""
        ranks = tuple(range(degree))
        self._pool.prepare({ranks: TIMEOUT_S})
        if degree == 1 or self._watchdog.rank >= degree:
            return None
        group = self._pool.get(ranks)
        assert group is not None  # only a single rank has none
        return Company(group=group, order=ranks)

    def _link(self, operation: str, degree: int, size_bytes: int) -> list[Measurement]:
        company = self._company(degree)
        times = torch.zeros(self._job.repeats, dtype=torch.float64)
        self._clock.restart()
        if company is not None:
            send = _exchange(operation, degree, size_bytes, self._device, company.group)
            runs = []
            for _ in range(self._job.warmup + self._job.repeats):
                dist.all_reduce(torch.zeros(1), group=company.group)
                start = self._clock.now_us()
                send()
                runs.append(float(self._clock.now_us() - start))
            times[:] = torch.tensor(runs[self._job.warmup :])
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        task = f"link {operation}"
        return [
            self._measurement(LINK_MODEL, task, degree, 1, size_bytes, us, 0)
            for us in times.tolist()
        ]

    def _measurement(
        self, model: str, task: str, degree: int, batch: int, width: int, us: float, memory: int
    ) -> Measurement:
        return Measurement(
            model=model,
            task=task,
            device_type=self._job.device_type,
            degree=degree,
            batch=batch,
            frames=1,
            height=1,
            width=width,
            text_tokens=0,
            duration_us=max(1, round(us)),
            memory_bytes=memory,
            source="profile",
        )


class _RowBench:
    """A rank's part of one row, its input, and an optimizer."""

    def __init__(
        self,
        job: DeviceJob,
        kind: str,
        tp: int,
        microbatch: int,
        device: torch.device,
        company: Company | None,
    ) -> None:
        model = job.architecture()
        spec = spec_of_architecture(model)
        row = {"embedding": 0, "block": 1, "head": spec.head_row}[kind]
        self._kind, self._device = kind, device
        self._row = build_row(spec, row, seed=job.seed, device=device)
        if company is not None:
            rank = dist.get_rank(company.group)
            parts = {p.name: box_of(p.part(tp, rank)) for p in row_parameters(spec, row)}
            keep_parts(self._row, parts)
            join_group(self._row, spec.vocabulary, company, None)
        self._optimizer = torch.optim.AdamW(self._row.parameters(), lr=1e-4)
        generator = torch.Generator().manual_seed(job.seed)
        size = (microbatch, model.sequence_length)
        self._ids = torch.randint(spec.vocabulary, size, generator=generator).to(device)
        self._given = self._input(spec, size, generator)

    def _input(
        self, spec: DecoderSpec, size: tuple[int, int], generator: torch.Generator
    ) -> Tensor:
        if self._kind == "embedding":
            return self._ids
        hidden = torch.randn(*size, spec.hidden, generator=generator)
        return hidden.to(self._device).requires_grad_()

    def run(self, clock: Clock, company: Company | None) -> tuple[float, float, float]:
        """Microseconds of forward, backward and update."""
        if company is not None:
            dist.all_reduce(torch.zeros(1), group=company.group)
        begin = clock.now_us()
        result = self._forward()
        middle = clock.now_us()
        result.backward()  # type: ignore[no-untyped-call]  # torch does not type it
        end = clock.now_us()
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(middle - begin), float(end - middle), float(clock.now_us() - end)

    def peak_bytes(self) -> int:
        """Most bytes of tensors in a further forward and backward."""
        modules: tuple[nn.Module, ...] = (self._row,)
        memory = PeakMemory(modules, self._device)
        with memory.watch():
            self._forward().backward()  # type: ignore[no-untyped-call]  # torch does not type it
        self._optimizer.zero_grad()
        return memory.bytes

    def _forward(self) -> Tensor:
        out: Tensor = self._row(self._given)
        return token_loss(out, self._ids) if self._kind == "head" else out.sum()


def _exchange(
    operation: str, degree: int, size_bytes: int, device: torch.device, group: dist.ProcessGroup
) -> Callable[[], None]:
    """One exchange of a rank's message with its group."""
    count = -(-size_bytes // (2 * degree)) * degree  # 2 bytes a value, whole parts for all
    given = torch.zeros(count, dtype=torch.float16, device=device)
    taken = torch.empty_like(given)

    def all_to_all() -> None:
        dist.all_to_all_single(taken, given, group=group)

    def all_reduce() -> None:
        dist.all_reduce(taken, group=group)

    def point_to_point() -> None:
        rank = dist.get_rank(group)
        peer = dist.get_global_rank(group, rank ^ 1) if rank ^ 1 < degree else None
        if peer is None:  # the last of an odd number has nobody
            return
        if rank % 2 == 0:
            dist.send(given, peer, group=group)
            dist.recv(taken, peer, group=group)
        else:
            dist.recv(taken, peer, group=group)
            dist.send(given, peer, group=group)

    return {"all-to-all": all_to_all, "all-reduce": all_reduce, "p2p": point_to_point}[operation]
