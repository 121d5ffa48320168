"""What the tests run on every rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from arachne_opt.errors import RunError
from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.encoding import Member, encode_batch
from arachne_opt.executor.gradients import GradientBuckets
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.job import ReplayJob
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.report import ReplayReport
from arachne_opt.executor.sequence_parallel import Window, active, attention
from arachne_opt.executor.trainer import CascadeTrainer
from arachne_opt.workload import MicroBatch


def train(rank: int, jobs: list[ReplayJob]) -> list[Any]:
    """Losses, gradients of each step, parameters at the end, report and groups made of each job."""
    results = []
    for job in jobs:
        trainer = CascadeTrainer(job)
        reports, gradients = [], []
        for step in trainer.steps:
            reports.append(trainer.train_step(step))
            summed = trainer.update.gradients()
            if rank == 0:
                gradients.append({name: g.clone().numpy() for name, g in summed.items()})
        names = set(dict(trainer.adapter.transformer.named_parameters()))
        weights = trainer.update.weights()
        parameters = {name: weights[name].numpy() for name in names}
        losses = [report.loss for report in reports]
        results.append((losses, gradients, parameters, trainer._report(reports), trainer.pool.made))
    return results


def encode(rank: int, choice: ModelChoice, batches: list[MicroBatch]) -> list[list[Any]]:
    """The latents of micro-batches at degrees 1 to 4, None where the rank takes no part."""
    adapter, pool = build_adapter(choice, torch.device("cpu")), GroupPool()
    return [_encode(rank, adapter, pool, batch) for batch in batches]


def _encode(rank: int, adapter: VideoAdapter, pool: GroupPool, batch: MicroBatch) -> list[Any]:
    results: list[Any] = []
    for degree in (1, 2, 3, 4):
        ranks = tuple(range(degree))
        pool.prepare({ranks: 30.0})
        if rank >= degree:
            results.append(None)
            continue
        member = Member(index=rank, degree=degree, group=pool.get(ranks))
        results.append(encode_batch(adapter, batch, member).numpy())
    return results


def attend(rank: int, counts: tuple[int, ...], ranks: tuple[int, ...], heads: int) -> Any:
    """Output and input gradients of attention over this rank's window of shared tensors."""
    pool = GroupPool()
    pool.prepare({ranks: 30.0})
    if rank not in ranks:
        return None
    window = Window(counts=counts, index=ranks.index(rank), group=pool.get(ranks))
    q, k, v, out = attention_inputs(sum(counts), heads)
    own = [t[:, window.own].clone().requires_grad_() for t in (q, k, v)]
    with active(window):
        result = attention(*own)
        (result * out[:, window.own]).sum().backward()
    return [result.detach().numpy(), *(t.grad.numpy() for t in own)]


def attention_inputs(tokens: int, heads: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(3)
    return [torch.randn(2, tokens, heads, 5, generator=made) for _ in range(4)]


def attend_with_wrong_window(rank: int) -> str:
    """The complaint about tokens that are not the plan's."""
    window = Window(counts=(3, 2), index=rank, group=dist.group.WORLD)
    tokens = torch.zeros(1, 4, 2, 5)
    try:
        with active(window):
            attention(tokens, tokens, tokens)
    except RunError as error:
        return str(error)
    return ""


def prepare_groups(rank: int) -> list[int]:
    """Groups made after each of three preparations, the last beyond the bound."""
    pool = GroupPool(bound=2)
    made = []
    for needed in ([(0, 1), (1, 2)], [(1, 2), (0, 1), (0,)], [(0, 2), (0, 1)], [(1, 2)]):
        pool.prepare(dict.fromkeys(needed, 30.0))
        made.append(pool.made)
        for ranks in needed:
            if rank in ranks and len(ranks) > 1:
                dist.all_reduce(torch.zeros(1), group=pool.get(ranks))
    return made


def prepare_longer(rank: int) -> list[int]:
    """Groups made after each time-out that a plan asks of one group; it works at the end."""
    pool, made = GroupPool(), []
    for timeout_s in (30.0, 20.0, 60.0, 60.0):
        pool.prepare({(0, 1): timeout_s})
        made.append(pool.made)
    if rank < 2:
        dist.all_reduce(torch.zeros(1), group=pool.get((0, 1)))
    return made


def report_of(results: list[Any]) -> ReplayReport:
    """Rank 0's report of the first job."""
    return results[0][0][3]


def sum_in_small_buckets(rank: int) -> tuple[int, list[float], list[float]]:
    """Sums that had begun inside the last backward, the whole sums, and this rank's parts."""

    def buckets(shards: int) -> tuple[list[torch.nn.Parameter], GradientBuckets]:
        parameters = [torch.nn.Parameter(torch.zeros(n)) for n in (4, 3, 1)]
        return parameters, GradientBuckets(parameters, shards=shards, bucket_bytes=4)

    def passes(parameters: list[torch.nn.Parameter], made: GradientBuckets) -> int:
        made.zero()
        scales = ((1.0, 2.0), (4.0, 6.0), ())[rank]
        for number, scale in enumerate(scales):
            if number == len(scales) - 1:
                made.arm()
            sum((scale * p).sum() for p in parameters).backward()
        early = len(made._works)
        made.start_rest()
        made.wait()
        return early

    whole, summed = buckets(1)
    early = passes(whole, summed)
    parted, scattered = buckets(3)
    passes(parted, scattered)
    parts = [scattered.own(b.flat, rank) for b in scattered.buckets]
    return early, [p.grad.mean().item() for p in whole], torch.cat(parts).tolist()


def backward_only(rank: int, job: ReplayJob) -> float:
    """Norm of the whole gradient that ``backward`` leaves on this rank."""
    trainer = CascadeTrainer(job)
    trainer.backward(0)
    parameters = trainer.adapter.transformer.parameters()
    return sum(p.grad.square().sum().item() for p in parameters)
