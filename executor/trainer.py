"""The training loop of a rank: replay a plan, sum gradients, step the optimizer, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from arachne_opt.errors import RunError
from arachne_opt.executor.adapters import build_adapter
from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.cascade_runner import CascadeRunner, RankTrace
from arachne_opt.executor.distributed import pick_device, require_group
from arachne_opt.executor.gradients import GradientBuckets
from arachne_opt.executor.groups import GroupPool
from arachne_opt.executor.job import ReplayJob, check_world_size
from arachne_opt.executor.report import IterationReport, RankSpan, ReplayReport, TaskReport
from arachne_opt.executor.watchdog import Watchdog

StepCallback = Callable[[int, RankTrace], None]


class CascadeTrainer:
    """Trains on one rank; every rank makes one, inside an initialised process group.

    Args:
        job: what to run; checked against the number of ranks.
        adapter: a model of the user's; the job's choice where None.
        watchdog: ends the process when a task hangs; errors are only named where None.

    Raises:
        InputError: a plan for another world size.
        RunError: the ranks have not been joined.
    """

    def __init__(
        self,
        job: ReplayJob,
        *,
        adapter: VideoAdapter | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        require_group()
        check_world_size(job, dist.get_world_size())
        self.job = job
        self.adapter = adapter or build_adapter(job.model, pick_device(job.device))
        self.watchdog = watchdog or Watchdog(dist.get_rank())
        self.pool = GroupPool()
        self.runner = CascadeRunner(job, self.adapter, self.pool, self.watchdog)
        parameters = list(self.adapter.transformer.parameters())
        self.buckets = GradientBuckets(parameters)
        # Plain replicated state: every rank applies the same update to the same weights.
        self.optimizer = torch.optim.AdamW(
            parameters, lr=job.learning_rate, weight_decay=job.weight_decay
        )

    def run(self, on_step: StepCallback | None = None) -> ReplayReport | None:
        """The report of all steps on rank 0, None elsewhere.

        Args:
            on_step: called on every rank after each step with its number and this rank's trace.
        """
        traces = []
        for step in range(self.job.steps):
            traces.append(self.train_step(step))
            if on_step is not None:
                on_step(step, traces[-1])
        if self.job.save_parameters and self.watchdog.rank == 0:
            self._save(Path(self.job.save_parameters))
        return self._report(traces)

    def train_step(self, step: int) -> RankTrace:
        """One optimizer step; the trace holds the loss of the whole iteration."""
        self.buckets.zero()
        trace = self.runner.run(step)
        before = self.runner.now_us()
        with self.watchdog.task("summing gradients", self.job.iteration_timeout_s):
            self.buckets.sum_over_ranks()
        summed = self.runner.now_us()
        self.optimizer.step()
        trace.sync_us, trace.optimizer_us = summed - before, self.runner.now_us() - summed
        return trace

    def _save(self, path: Path) -> None:
        """Writes the parameters beside their place and moves them there when they are whole."""
        partial = path.with_name(path.name + ".partial")
        try:
            torch.save(self.adapter.transformer.state_dict(), partial)
            partial.replace(path)
        except (OSError, RuntimeError) as error:  # torch reports a full disk as the latter
            raise RunError(f"cannot save the parameters: {error}", where=str(path)) from error

    def _report(self, traces: Sequence[RankTrace]) -> ReplayReport | None:
        rank = self.watchdog.rank
        gathered: list[Sequence[RankTrace]] | None = None
        if rank == 0:
            gathered = [[] for _ in range(dist.get_world_size())]
        dist.gather_object(traces, gathered)
        if gathered is None:
            return None
        steps = zip(*gathered, strict=True)
        return ReplayReport(
            model=self.job.model.name,
            world_size=len(gathered),
            device=self.adapter.device.type,
            threads_per_rank=torch.get_num_threads(),
            weight_rule=self.job.weight_rule,
            iterations=tuple(_iteration(self.job, ranks) for ranks in steps),
        )


def _iteration(job: ReplayJob, ranks: Sequence[RankTrace]) -> IterationReport:
    step = ranks[0].step
    iteration = job.iteration_of(step)
    indices = range(len(iteration.plan.placements))
    return IterationReport(
        name=iteration.name,
        step=step,
        loss=ranks[0].loss,
        planned_us=iteration.plan.makespan_us,
        measured_us=ranks[0].makespan_us,
        sync_us=max(trace.sync_us for trace in ranks),
        optimizer_us=max(trace.optimizer_us for trace in ranks),
        overhead_us=max(trace.overhead_us for trace in ranks),
        tasks=tuple(_task(job, ranks, index) for index in indices),
    )


def _task(job: ReplayJob, ranks: Sequence[RankTrace], index: int) -> TaskReport:
    iteration = job.iteration_of(ranks[0].step)
    placement = iteration.plan.placements[index]
    batch = iteration.batch_of(placement.cascade)
    cluster = iteration.problem.cluster
    spans = [(rank, *ranks[rank].spans[index]) for rank in sorted(placement.devices)]
    sent = 0
    if placement.task == 1:
        sent = sum(trace.sent_bytes.get(placement.cascade, 0) for trace in ranks)
    return TaskReport(
        micro_batch=batch.id,
        task=iteration.problem.cascades[placement.cascade].tasks[placement.task].name,
        shape=batch.shape,
        clips=batch.size,
        text_tokens=batch.text_tokens,
        device_type=cluster.devices[placement.devices[0]].device_type.name,
        penalty_ppm=cluster.penalty_ppm(placement.devices),
        planned_start_us=placement.start_us,
        planned_end_us=placement.end_us,
        ranks=tuple(RankSpan(rank=r, start_us=start, end_us=end) for r, start, end in spans),
        handoff_bytes=sent,
    )
