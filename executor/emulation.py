"""Rehearses a plan: tasks sleep for their planned time, all else is real.

Groups, collectives, hand-offs, gradient sums and the optimizer run as in a training, on small
tensors. The planned time of a task holds its communication, so that sleep fills up what that
leaves.

Public: ``EmulatedWork`` on the ranks; ``emulated_job`` and ``task_overheads`` need no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from arachne_opt.cascade.plan import CascadePlan, Placement
from arachne_opt.cascade.problem import CascadeProblem
from arachne_opt.errors import InputError
from arachne_opt.executor.job import ReplayIteration, ReplayJob
from arachne_opt.executor.model_config import ModelChoice
from arachne_opt.executor.report import IterationReport
from arachne_opt.workload import Clip, Iteration, MicroBatch, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from arachne_opt.executor.adapters.base import VideoAdapter
    from arachne_opt.executor.encoding import Member
    from arachne_opt.executor.work import LeftOut

# A stand-in for micro-batches of which only the tasks are known.
_STAND_IN = Shape(frames=1, height=16, width=16)

# One on the way to the loss and one on the way back.
_EXCHANGES = 2


class EmulatedWork:
    """Sleeps on one rank."""

    def __init__(self, adapter: VideoAdapter) -> None:
        self._adapter = adapter

    def begin(self, iteration: ReplayIteration, following: ReplayIteration | None) -> LeftOut:
        """Reads nothing, so that nothing is left out."""
        return {}

    def encode(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """Tokens of the right size, after the planned time."""
        import torch

        batch, config = iteration.batch_of(placement.cascade), self._adapter.config
        size = (batch.size, config.token_count(batch.shape), config.carried_features)
        return _occupy(placement, member, lambda: torch.zeros(size, device=self._adapter.device))

    def text(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """Texts of the right size, after the planned time."""
        import torch

        from arachne_opt.executor.texts import text_features

        size = (iteration.batch_of(placement.cascade).size, 1, text_features(self._adapter.config))
        return _occupy(placement, member, lambda: torch.zeros(size, device=self._adapter.device))

    def cached(self, iteration: ReplayIteration, placement: Placement, member: Member) -> Tensor:
        """This rank's tokens of a micro-batch without an encode task."""
        import torch

        from arachne_opt.executor.sequence_parallel import split_tokens

        batch, config = iteration.batch_of(placement.cascade), self._adapter.config
        own = split_tokens(config.token_count(batch.shape), member.degree)[member.index]
        return torch.zeros(batch.size, own, config.carried_features, device=self._adapter.device)

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
        """A loss of zero and its gradient, after the planned time."""
        return _occupy(placement, member, lambda: self._backward(carried_BnP))

    def _backward(self, tokens: Tensor) -> Tensor:
        """A backward pass through the parameters that gives no gradient."""
        weight, bias = self._adapter.transformer.parameters()
        loss = 0.0 * (tokens.sum() + weight.sum() + bias.sum())
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
        return loss.detach()


def emulated_job(
    name: str,
    problems: Sequence[CascadeProblem],
    plans: Sequence[CascadePlan],
    *,
    plan_ids: Sequence[str] = (),
    speed: float = 1.0,
    epochs: int = 1,
) -> ReplayJob:
    """A job that rehearses plans of which no clips are known.

    Args:
        name: of the model, for the report.
        problems: what the plans are for.
        plans: one for each problem.
        plan_ids: their ids in the database, where they are stored.
        speed: how many times faster than planned.
        epochs: how often.
    """
    if speed <= 0:
        raise InputError(f"the speed must be positive, not {speed:g}")
    ids = plan_ids or [""] * len(plans)
    iterations = tuple(
        ReplayIteration(
            batches=_stand_ins(problem),
            problem=problem,
            plan=scaled_plan(plan, 1 / speed),
            plan_id=identity,
        )
        for problem, plan, identity in zip(problems, plans, ids, strict=True)
    )
    model = ModelChoice(preset=name, emulated=True)
    return ReplayJob(
        model=model, iterations=iterations, epochs=epochs, threads_per_rank=1, device="cpu"
    )


def scaled_plan(plan: CascadePlan, factor: float) -> CascadePlan:
    """The plan with all times multiplied; what did not overlap does not overlap."""
    return replace(
        plan,
        placements=tuple(
            replace(p, start_us=round(p.start_us * factor), end_us=round(p.end_us * factor))
            for p in plan.placements
        ),
    )


def task_overheads(iteration: IterationReport) -> tuple[int, ...]:
    """Time of each task, in microseconds, that is neither planned work nor waiting for others.

    A task is ready when every rank of its group is done with its task before, and the micro-batch
    with its own. From then to its end only its planned duration is work.
    """
    free: dict[int, int] = {}
    done: dict[str, int] = {}
    found = []
    for task in iteration.tasks:
        ready = max((free.get(rank, 0) for rank in task.devices), default=0)
        ready = max(ready, done.get(task.micro_batch, 0))
        found.append(task.end_us - ready - (task.planned_end_us - task.planned_start_us))
        done[task.micro_batch] = task.end_us
        free |= {span.rank: span.end_us for span in task.ranks}
    return tuple(found)


def _stand_ins(problem: CascadeProblem) -> Iteration:
    batches: Iterable[MicroBatch] = (
        MicroBatch(id=cascade.id, shape=_STAND_IN, clips=(Clip(id=cascade.id, shape=_STAND_IN),))
        for cascade in problem.cascades
    )
    return Iteration(name=problem.name, micro_batches=tuple(batches))


def _occupy(placement: Placement, member: Member, work: Callable[[], Tensor]) -> Tensor:
    """What the work gives, after the planned time from when the group is there.

    Exchanges and the work are a part of that time, as they are in a training.
    """
    _meet(member)
    start = time.perf_counter()
    planned_s = (placement.end_us - placement.start_us) / 1e6
    for number in range(1, _EXCHANGES + 1):
        _sleep_until(start + planned_s * number / (_EXCHANGES + 1))
        _exchange(member)
    result = work()
    _sleep_until(start + planned_s)
    return result


def _meet(member: Member) -> None:
    """Returns when the whole group is here.

    gloo's barrier takes a logarithm of rounds; its sums go round the whole group twice.
    """
    import torch.distributed as dist

    if member.degree > 1:
        dist.barrier(group=member.group)


def _exchange(member: Member) -> None:
    """One small all-to-all of the group."""
    import torch
    import torch.distributed as dist

    if member.degree > 1:
        data = torch.zeros(member.degree)
        dist.all_to_all_single(torch.empty_like(data), data, group=member.group)


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > 0:
        time.sleep(left)
